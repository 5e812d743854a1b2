"""Uses the page of `hipvit serve` in headless Chromium as a person does, and compares what it draws with committed pictures.

    page.py ADDRESS MODEL IMAGE PICTURES [--write]

The server must offer explanations of MODEL, a classifier, and have the models `detector`, `segmenter` and `depth`. --write makes the pictures. A picture that
differs is written to target/page.
"""

import shutil
import sys
from pathlib import Path

from PIL import Image, ImageChops
from selenium import webdriver
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import Select, WebDriverWait

WIDTH, HEIGHT = 1000, 900
# Fonts are rendered differently between releases of Chromium: single pixels may differ, areas may not.
LARGEST_SHARE = 0.02
VISIBLE = 40


def browser() -> webdriver.Chrome:
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or sys.exit("page.py: chromium is not installed")
    for argument in (
        "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-background-networking",
        "--disable-component-update", "--disable-sync", "--no-first-run", "--force-color-profile=srgb", "--hide-scrollbars",
        f"--window-size={WIDTH},{HEIGHT}", "--lang=en",
    ):  # fmt: skip
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    return webdriver.Chrome(options=options, service=webdriver.ChromeService(shutil.which("chromedriver")))


def wait(page: webdriver.Chrome, condition: str, what: str) -> None:
    message = f"{what}; the page says: {page.find_element(By.ID, 'status').text}"
    WebDriverWait(page, 60).until(lambda page: page.execute_script(f"return {condition}"), message)


def compare(page: webdriver.Chrome, pictures: Path, name: str, write: bool) -> None:
    # The time of a request changes, and so does the width of the default font.
    page.execute_script(
        "document.getElementById('time').textContent = '1.0 ms from request to answer';"
        "document.body.style.fontFamily = 'DejaVu Sans';"
    )
    page.execute_async_script("requestAnimationFrame(() => requestAnimationFrame(arguments[0]))")
    file = pictures / f"{name}.png"
    if write:
        page.save_screenshot(str(file))
        Image.open(file).convert("RGB").quantize(128).save(file, optimize=True)
        return
    failed = Path("target/page")
    failed.mkdir(parents=True, exist_ok=True)
    page.save_screenshot(str(failed / file.name))
    found, expected = (Image.open(path).convert("RGB") for path in (failed / file.name, file))
    assert found.size == expected.size, f"{name}: {found.size} instead of {expected.size}"
    differing = ImageChops.difference(found, expected).convert("L").point(lambda value: 255 * (value > VISIBLE))
    share = differing.histogram()[255] / (found.width * found.height)
    assert share <= LARGEST_SHARE, f"{name}: {share:.1%} of the pixels differ from {file}; see {failed / file.name}"


def check_names(page: webdriver.Chrome) -> None:
    """Checks by the rendering engine's accessibility tree that every control has a name."""
    tree = page.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"]
    roles = {"application", "button", "checkbox", "combobox", "img", "radio", "slider", "textbox"}
    for node in tree:
        if node.get("role", {}).get("value") in roles and not node["ignored"]:
            assert node.get("name", {}).get("value"), f"a control without a name: {node}"


def status(page: webdriver.Chrome) -> str:
    return page.find_element(By.ID, "status").text


def choose(page: webdriver.Chrome, model: str, ready: str) -> None:
    Select(page.find_element(By.ID, "model")).select_by_visible_text(model)
    wait(page, f"document.getElementById('status').textContent.includes({ready!r})", f"{model} is not ready")
    check_names(page)


def check_classifier(page: webdriver.Chrome, image: Path, pictures: Path, write: bool) -> str:
    page.find_element(By.ID, "file").send_keys(str(image))
    wait(page, "document.querySelectorAll('#top button').length > 0", "there is no result")
    assert page.find_element(By.ID, "status").get_attribute("aria-live") == "polite"
    first = page.find_element(By.CSS_SELECTOR, "#top button .label").text
    assert first in status(page) and image.name in status(page), (first, status(page))
    assert " ms " in page.find_element(By.ID, "time").text
    compare(page, pictures, "result", write)

    # With the keyboard: from the picture to the pixels of the result, then to attention.
    page.find_element(By.CSS_SELECTOR, "input[value=picture]").send_keys(Keys.ARROW_DOWN)
    wait(page, "document.getElementById('legend').textContent.includes('AttnLRP')", "no pixels are shown")
    compare(page, pictures, "pixels", write)
    before = page.execute_script("return document.getElementById('canvas').toDataURL()")
    page.find_elements(By.CSS_SELECTOR, "#top button")[1].send_keys(Keys.ENTER)
    wait(page, f"document.getElementById('canvas').toDataURL() !== {before!r}", "another class has the same pixels")
    page.find_element(By.CSS_SELECTOR, "input[value=attnlrp]").send_keys(Keys.ARROW_DOWN)
    wait(page, "document.getElementById('legend').textContent.includes('rollout')", "no attention is shown")
    compare(page, pictures, "attention", write)
    return first


def check_detector(page: webdriver.Chrome, image: Path, pictures: Path, write: bool) -> None:
    choose(page, "detector", f"{image.name}: ")
    entries = page.find_elements(By.CSS_SELECTOR, "#top button")
    assert entries and status(page) == f"{image.name}: {len(entries)} objects.", status(page)
    # Screen readers get the place of each object.
    assert all(", from " in entry.get_attribute("textContent") for entry in entries)
    compare(page, pictures, "boxes", write)
    before = page.execute_script("return document.getElementById('canvas').toDataURL()")
    entries[-1].send_keys(Keys.ENTER)
    wait(page, f"document.getElementById('canvas').toDataURL() !== {before!r}", "no box stands out")
    assert entries[-1].get_attribute("aria-pressed") == "true"
    page.find_element(By.ID, "threshold").send_keys(Keys.END)
    wait(page, "document.getElementById('status').textContent.includes(': 0 objects')", "scores have no effect")
    assert page.find_element(By.ID, "threshold-value").text == "0.95"


def check_segmenter(page: webdriver.Chrome, image: Path, pictures: Path, write: bool) -> None:
    choose(page, "segmenter", "choose a point")
    canvas = page.find_element(By.ID, "canvas")
    has_mask = "document.getElementById('status').textContent.includes('the mask has')"
    ActionChains(page).move_to_element_with_offset(canvas, 30, -20).click().perform()
    wait(page, has_mask, "a click makes no mask")
    clicked = status(page)
    compare(page, pictures, "mask", write)
    page.find_element(By.ID, "clear").click()
    wait(page, "document.getElementById('status').textContent.includes('choose a point')", "points are not removed")
    # With the keyboard alone: the cross begins in the middle.
    page.execute_script("arguments[0].focus()", canvas)
    for _ in range(3):
        canvas.send_keys(Keys.ARROW_RIGHT)
    assert status(page).startswith("Cross at 56.0 % from the left, 50.0 %"), status(page)
    canvas.send_keys(Keys.ENTER)
    wait(page, has_mask, "the keyboard makes no mask")
    assert "score" in clicked and "score" in status(page)
    first = page.execute_script("return document.getElementById('canvas').toDataURL()")
    page.find_element(By.ID, "outside").send_keys(Keys.SPACE)
    page.execute_script("arguments[0].focus()", canvas)
    canvas.send_keys(Keys.SHIFT, Keys.ARROW_LEFT)
    canvas.send_keys(Keys.ENTER)
    wait(page, f"{has_mask} && document.getElementById('canvas').toDataURL() !== {first!r}", "a second point has no effect")
    canvas.send_keys(Keys.DELETE)
    wait(page, "document.getElementById('status').textContent.includes('choose a point')", "the keyboard removes no points")


def check_depth(page: webdriver.Chrome, image: Path, pictures: Path, write: bool) -> None:
    choose(page, "depth", f"{image.name}: depths from ")
    assert "near" in page.find_element(By.ID, "legend").text
    compare(page, pictures, "depth", write)
    before = page.execute_script("return document.getElementById('canvas').toDataURL()")
    page.find_element(By.CSS_SELECTOR, "input[value=depth]").send_keys(Keys.ARROW_UP)
    wait(page, f"document.getElementById('canvas').toDataURL() !== {before!r}", "the picture is not shown")


def main() -> None:
    address, model, image, pictures, *rest = sys.argv[1:]
    write, pictures, image = rest == ["--write"], Path(pictures), Path(image).resolve()
    page = browser()
    try:
        page.set_window_size(WIDTH, HEIGHT)
        page.get(f"http://{address}/")
        wait(page, "document.getElementById('model').value !== ''", "no model is listed")
        wait(page, "document.getElementById('status').textContent === 'Waiting for a picture.'", "the page is not ready")
        choose(page, model, "Waiting for a picture.")
        first = check_classifier(page, image, pictures, write)
        check_detector(page, image, pictures, write)
        check_segmenter(page, image, pictures, write)
        check_depth(page, image, pictures, write)

        # An error of the server is shown as it is.
        choose(page, model, first)
        page.find_element(By.ID, "file").send_keys(str(Path(__file__).resolve()))
        wait(page, "document.getElementById('status').classList.contains('failed')", "a text is no picture")
        assert "image" in status(page), status(page)

        # Nothing came from elsewhere, and nothing was blocked but the refused request.
        log = [entry["message"] for entry in page.get_log("browser")]
        assert all("/infer" in message and "400" in message for message in log), log
        foreign = page.execute_script(
            "return performance.getEntriesByType('resource').map(({name}) => name).filter((name) => !name.startsWith(location.origin))"
        )
        assert not [name for name in foreign if not name.startswith("data:")], foreign
    finally:
        page.quit()
    print(f"{model}: {first}")


main()
