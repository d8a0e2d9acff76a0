"""Every page of the site in four pairs of width and scheme, with axe: `make browser`."""

import pytest

from tests.browser.test_site import (
    SCHEMES,
    WIDTHS,
    require_accessible,
)


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("width", WIDTHS)
def test_axe_finds_nothing_in_any_page_and_none_is_wider_than_the_window(
    browser,
    site,
    width,
    scheme,
):
    pages = sorted(site.glob("*.html"))
    assert len(pages) > 20
    for path in pages:
        require_accessible(browser, path, width, scheme)
