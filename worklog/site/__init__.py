"""The web site: pages that need no server, no network and no Python."""

from worklog.site.build import site_files

__all__ = ["site_files"]
