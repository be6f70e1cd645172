#!/usr/bin/env python3
"""Opens reports in a real browser and looks at them as a reader would.

    check_report.py [--self-test] [--pictures DIR] FILE.html...

Each page is loaded from its file on a telephone and on a screen, light and dark. It must raise no error
and fetch nothing; its text must not overlap, stick out or fade into its background; lines must have the
points they say they have, inside of their chart; the read-out must follow the pointer. Then once more
without scripts, and on paper. What is wrong is printed; the last line counts the checks. --self-test
first damages the first page in every way that the checks are there for: each must be found.
"""
import argparse
import json
import os
import pathlib
import sys
import tempfile

from browser import Browser, BrowserError

WIDTHS = (360, 1280)
SCHEMES = ("light", "dark")
PAGE = pathlib.Path(__file__).with_name("check_page.js").read_text(encoding="utf-8")


def errors_of(events, url):
    """What the browser complained about, and what it fetched besides the page."""
    found = []
    for event in events:
        params = event.get("params", {})
        if event["method"] == "Runtime.exceptionThrown":
            found.append("script error: " + json.dumps(params["exceptionDetails"])[:300])
        elif event["method"] == "Log.entryAdded" and params["entry"]["level"] == "error":
            found.append("error: " + params["entry"]["text"])
        elif event["method"] == "Network.requestWillBeSent" and params["request"]["url"] != url:
            found.append("fetched " + params["request"]["url"][:200])
    return found


def check_shown(browser, url, width, scheme):
    browser.show(width, 900, scheme)
    browser.open(url)
    found = browser.run(f"({PAGE})()")
    if browser.run("document.querySelectorAll('.plot.scaled[data-x]').length"):
        found += check_read_out(browser, 0)
    return found + errors_of(browser.events, url)


def check_read_out(browser, index):
    """Points at the middle of a chart: a line of text for each of its lines, inside of the window."""
    place = browser.run(f"""(() => {{
        const plot = document.querySelectorAll('.plot.scaled[data-x]')[{index}];
        plot.scrollIntoView({{block: 'center'}});
        const box = plot.querySelector('svg').getBoundingClientRect();
        return [box.left + box.width / 2, box.top + box.height / 2];
    }})()""")
    browser.point(*place)
    seen = browser.run(f"""(() => {{
        const plot = document.querySelectorAll('.plot.scaled[data-x]')[{index}];
        const tip = plot.querySelector('.tip');
        if (!tip) return null;
        const box = tip.getBoundingClientRect();
        const lines = [...plot.querySelectorAll('path[data-name]')]
            .filter(path => path.getAttribute('d'));
        return {{shown: !tip.hidden, rows: tip.children.length, want: lines.length + 1,
                 inside: box.left >= 0 && box.right <= innerWidth, text: tip.textContent}};
    }})()""")
    browser.point(1, 1)
    if not seen or not seen["shown"]:
        return ["no read-out under the pointer"]
    found = []
    if seen["rows"] != seen["want"]:
        found.append(f"the read-out has {seen['rows']} lines, not {seen['want']}")
    if not seen["inside"]:
        found.append("the read-out sticks out of the window")
    if "NaN" in seen["text"]:
        found.append("the read-out says " + seen["text"])
    return found


def check_without_scripts(browser, url):
    """Every picture is in the file itself."""
    with_scripts = browser.run("document.querySelectorAll('svg').length")
    browser.call("Emulation.setScriptExecutionDisabled", value=True)
    browser.open(url)
    root = browser.call("DOM.getDocument")["root"]["nodeId"]
    nodes = browser.call("DOM.querySelectorAll", nodeId=root, selector="svg")["nodeIds"]
    browser.call("Emulation.setScriptExecutionDisabled", value=False)
    if len(nodes) != with_scripts:
        return [f"{len(nodes)} pictures without scripts, {with_scripts} with them"]
    return []


def check_paper(browser, url):
    """Paper is white, whatever the reader prefers on the screen."""
    browser.show(1280, 900, "dark", "print")
    browser.open(url)
    colour = browser.run("getComputedStyle(document.body).backgroundColor")
    size = len(browser.call("Page.printToPDF", printBackground=True)["data"])
    found = [] if colour == "rgb(255, 255, 255)" else [f"printed on {colour}"]
    return found if size > 10000 else found + [f"a PDF of {size} bytes"]


def check_page(browser, path, pictures):
    url = path.resolve().as_uri()
    results = []
    for width in WIDTHS:
        for scheme in SCHEMES:
            results.append((f"{width} px, {scheme}", check_shown(browser, url, width, scheme)))
            if pictures:
                browser.picture(os.path.join(pictures, f"{path.stem}-{width}-{scheme}.png"))
    results.append(("without scripts", check_without_scripts(browser, url)))
    results.append(("on paper", check_paper(browser, url)))
    return results


# What is done to a page that is right, and a part of what must be said about it.
DAMAGES = (
    ("a script fails", "</body>", "<script>throw new Error('damaged')</script></body>", "damaged"),
    ("something is fetched", "</main>", "<img src='https://example.org/x.png'></main>", "error"),
    ("text is too wide", "</main>", f"<p style='white-space: nowrap'>{'wide ' * 300}</p></main>",
     "sticks out"),
    ("the page is too wide", "</main>", "<div style='width: 2000px'>x</div></main>", "px wide in"),
    ("text overlaps", "</main>", "<p>below</p><p style='margin-top: -20px'>above</p></main>",
     "overlap"),
    ("labels of an axis overlap", 'dy="36"', 'dy="17"', "overlap"),
    ("text fades", "</main>", "<p style='background: #777; color: #888'>faint</p></main>",
     "contrast"),
    ("a line lacks a point", 'data-points="300"', 'data-points="301"', "points, not 301"),
    ("a line leaves its chart", "L1000.00 ", "L1100.00 ", "leaves the chart"),
    ("a line is not a number", "L1000.00 ", "Lnan ", "not numbers"),
    ("a bar leaves its chart", '<rect x="0.000%"', '<rect x="90.000%"', "leaves the chart"),
    ("a mark is missing", 'id="mark1"', 'id="mark9"', "not drawn"),
    ("a picture is not described", 'id="d1">', 'id="d1"></desc><desc>', "has no desc"),
    ("an id is used again", 'id="d2"', 'id="d1"', "twice"),
    ("the read-out is dead", "'pointermove'", "'nothing'", "no read-out"),
)


def check_damages(browser, path):
    """The checks find what they are there for."""
    good = path.read_text(encoding="utf-8")
    results = []
    with tempfile.TemporaryDirectory(prefix="muon-report-") as folder:
        damaged = pathlib.Path(folder) / "damaged.html"
        for name, old, new, want in DAMAGES:
            damaged.write_text(good.replace(old, new), encoding="utf-8")
            found = check_shown(browser, damaged.as_uri(), 1280, "light")
            missed = [] if any(want in line for line in found) else [f"not found; but {found}"]
            if old not in good:
                missed = [f"the page has no {old}"]
            results.append((f"where {name}", missed))
    return results


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--self-test", action="store_true", help="show that the checks can fail")
    parser.add_argument("--pictures", metavar="DIR", help="keep what was seen as PNG files there")
    parser.add_argument("files", metavar="FILE.html", nargs="+", type=pathlib.Path)
    args = parser.parse_args()
    for path in args.files:
        if not path.is_file():
            parser.error(f"{path}: no such file")
    passed = failed = 0
    try:
        with Browser(os.environ.get("CHROMIUM", "chromium")) as browser:
            for path in args.files:
                results = check_damages(browser, path) if args.self_test else []
                args.self_test = False
                for what, found in results + check_page(browser, path, args.pictures):
                    passed += not found
                    failed += bool(found)
                    print(f"{path.name}, {what}: " + ("ok" if not found else "FAILED"), flush=True)
                    for line in found[:20]:
                        print(f"    {line}")
    except (BrowserError, OSError) as error:
        print(f"check_report: {error}", file=sys.stderr)
        failed += 1
    print(f"{passed} passed, {failed} failed")
    return failed != 0


if __name__ == "__main__":
    sys.exit(main())
