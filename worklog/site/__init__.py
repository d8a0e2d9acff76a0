"""The web site: pages that need no server, no network and no Python."""

from worklog.site.build import Site, site_files

__all__ = ["Site", "site_files"]
