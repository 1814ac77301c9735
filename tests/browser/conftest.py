"""A page in Chromium: Debian's packages chromium and chromium-driver, or any other with these two commands."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

WAIT_S = 30.0
SIZE = (1200, 900)
IMAGES = Path(__file__).resolve().parents[2] / "docs" / "images"
_ARGUMENTS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--force-color-profile=srgb",
)
_EXPECTED = ("Failed to load resource", "WebSocket connection to")
"""What the browser says of error answers, and of a server that is away."""
Value = TypeVar("Value")


class Page:
    """A page of the console. Elements are found by CSS, or by the text of a button or link."""

    def __init__(self, driver: Any, images: Path | None) -> None:
        self.driver, self._images = driver, images

    def open(self, address: str) -> None:
        self.driver.get(address)

    def all(self, css: str) -> list[Any]:
        return list(self.driver.find_elements("css selector", css))

    def text(self, css: str = "main") -> str:
        return "\n".join(self.driver.execute_script("return arguments[0].innerText", one) for one in self.all(css))

    def until(self, found: Callable[[], Value], what: str = "") -> Value:
        """Wait until something is found; return it."""
        deadline = time.monotonic() + WAIT_S
        while True:
            try:
                if value := found():
                    return value
            except Exception as error:
                if "stale" not in str(error):  # it was drawn anew meanwhile
                    raise
            assert time.monotonic() < deadline, f"{what}: {self.text()}"
            time.sleep(0.05)

    def sees(self, text: str, css: str = "main") -> None:
        self.until(lambda: text in self.text(css), f"{text!r} in {css}")

    def press(self, text: str) -> None:
        """Press the button, tab or link of this text."""
        path = f"//*[self::button or self::a or self::summary][normalize-space()={json.dumps(text)}]"
        self.until(lambda: self.driver.find_elements("xpath", path), text)[0].click()

    def write(self, text: str, *then: str) -> None:
        """Write a text into the editor in the place of what is there, then send keys."""
        from selenium.webdriver.common.keys import Keys

        field = self.until(lambda: self.all(".cm-content, .plain-editor textarea"))[0]
        field.click()
        field.send_keys(Keys.CONTROL, "a")
        field.send_keys(Keys.DELETE)
        self.driver.execute_cdp_cmd("Input.insertText", {"text": text})
        if then:
            field.send_keys(*then)

    def be_phone(self, width: int) -> None:
        """Have the width of a phone; 0: be none any more."""
        if width:
            told = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": True}
            self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", told)
        else:
            self.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})

    def picture(self, name: str) -> None:
        """Take a picture for the docs, if they are to be renewed (--update-golden)."""
        if self._images is not None:
            self._images.mkdir(exist_ok=True)
            self.driver.save_screenshot(str(self._images / f"{name}.png"))

    def complaints(self) -> list[str]:
        """Return what the browser finds wrong with the page since it was asked last."""
        found = [entry["message"] for entry in self.driver.get_log("browser")]
        return [one for one in found if not any(told in one for told in _EXPECTED)]


@pytest.fixture
def page(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Page]:
    webdriver = pytest.importorskip("selenium.webdriver", reason="needs the package selenium")
    from selenium.webdriver.chrome.service import Service

    chromium, chromedriver = shutil.which("chromium"), shutil.which("chromedriver")
    if chromium is None or chromedriver is None:
        pytest.skip("needs chromium and chromedriver (Debian's packages chromium and chromium-driver)")
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for argument in (*_ARGUMENTS, f"--user-data-dir={tmp_path / 'browser'}"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(chromedriver))
    driver.set_window_size(*SIZE)
    try:
        yield Page(driver, IMAGES if request.config.getoption("--update-golden") else None)
    finally:
        driver.quit()
