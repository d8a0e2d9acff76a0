"""The web site: pages that need no server, no network and no Python."""

from worklog.site.build import SiteFiles, site_files

__all__ = ["SiteFiles", "site_files"]
