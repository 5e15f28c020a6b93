from collections.abc import Iterator
from pathlib import Path

import pytest
from gradio_client import Client

from tests.serve.live import LiveGateway, noise, png
from tests.ui.live import running_page


@pytest.fixture(scope="session")
def page(gateway: LiveGateway) -> Iterator[str]:
    """The URL of the page over the session's gateway."""
    with running_page(gateway.url) as url:
        yield url


@pytest.fixture
def visitor(page: str) -> Client:
    """Somebody who opened the page and has not logged in."""
    return Client(page, verbose=False)


@pytest.fixture
def picture(tmp_path: Path) -> Path:
    """A picture file of random pixels."""
    path = tmp_path / "picture.png"
    path.write_bytes(png(noise(3)))
    return path
