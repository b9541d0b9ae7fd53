import signal

import pytest
import torch
from hypothesis import HealthCheck, settings

from support.browser_pages import BROWSER, FLAGS

# A shell makes a job in the background deaf to Ctrl-C, and with it all that the tests start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


# The tensors of tests are small: a second thread gains nothing, and loses much when another process is busy.
torch.set_num_threads(1)

# Property tests check results, not time: a busy machine must not fail them.
settings.register_profile("heedful", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("heedful")

# What measures time, kills processes or starts a cluster has the machine to itself; the rest shares it (scripts/check).
ALONE = ("serve", "faults", "test_shards.py", "test_corpus.py", "test_bulk.py", "test_deploy.py", "test_clock.py")
# What takes minutes begins first, else one worker is still at it when the other has nothing left to do.
LONG = ("learn", "test_shell_blocks.py", "test_first_ten.py", "test_notebooks.py", "test_site.py", "importers")


def pytest_collection_modifyitems(items):
    for item in items:
        if not set(ALONE).isdisjoint(item.path.parts):
            item.add_marker("alone")
    items.sort(key=lambda item: next((at for at, long in enumerate(LONG) if long in item.path.parts), len(LONG)))


@pytest.fixture(scope="module")
def chromium():
    """A real browser."""
    if BROWSER is None:
        pytest.skip("no chromium here")
    playwright = pytest.importorskip(
        "playwright.sync_api", reason="playwright is not installed: pip install 'heedful[dev]'"
    )
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=BROWSER, args=FLAGS)
        yield browser
        browser.close()
