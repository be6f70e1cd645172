#!/usr/bin/env python3
"""Opens the pages of muonctl in a real browser and looks at them as a reader would.

    check_report.py [--self-test] [--pictures DIR] FILE.html...

Each page is loaded from its file on a telephone, on a tablet and on a large screen, light and dark. It must
raise no error and fetch nothing; its text must not overlap, stick out or fade into its background; what is
drawn must stay in its picture; numbers must be those of the page's data; values must follow the pointer.
Then once more without scripts, and on paper. Pages of made-up runs must say what is true of them. What is
wrong is printed; the last line counts the checks. --self-test first damages the first page in every way
that the checks are there for: each must be found.
"""
import argparse
import json
import os
import pathlib
import sys
import tempfile

from browser import Browser, BrowserError

WIDTHS = (360, 800, 1600)
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
    if scheme == "light":
        for index in range(browser.run("document.querySelectorAll('.plot').length")):
            found += check_read_out(browser, index)
    return found + errors_of(browser.events, url)


def check_read_out(browser, index):
    """Points at something that is drawn: its values appear, inside of the window."""
    place = browser.run(f"""(() => {{
        const plot = document.querySelectorAll('.plot')[{index}];
        plot.scrollIntoView({{block: 'center'}});
        const shapes = [...plot.querySelectorAll('path.line, rect.fill, rect.heat, .mark')]
            .map(shape => shape.getBoundingClientRect()).filter(box => box.width + box.height > 1);
        const widest = shapes.reduce((a, b) => !a || b.width * b.height > a.width * a.height ? b : a, null);
        return widest && [widest.left + widest.width / 2, widest.top + widest.height / 2];
    }})()""")
    if not place:
        return []
    browser.point(*place)
    seen = browser.run(f"""(() => {{
        const plot = document.querySelectorAll('.plot')[{index}], tip = plot.querySelector('.tip');
        const box = tip.getBoundingClientRect();
        return {{shown: !tip.hidden, rows: tip.querySelectorAll('b').length, text: tip.textContent,
                 series: plot.querySelectorAll('g[data-series]:not([data-series=""])').length,
                 inside: box.left >= 0 && box.right <= innerWidth}};
    }})()""")
    browser.point(1, 1)
    if not seen["shown"]:
        return [f"picture {index}: no values under the pointer"]
    found = []
    if seen["rows"] < max(seen["series"], 1):
        found.append(f"picture {index}: {seen['rows']} values under the pointer, want {seen['series']}")
    if not seen["inside"]:
        found.append(f"picture {index}: the values stick out of the window")
    if any(word in seen["text"] for word in ("NaN", "undefined")):
        found.append(f"picture {index}: under the pointer: {seen['text']}")
    return found


def check_without_scripts(browser, url):
    """A page that cannot draw itself says why."""
    browser.call("Emulation.setScriptExecutionDisabled", value=True)
    browser.open(url)
    root = browser.call("DOM.getDocument", depth=-1)["root"]["nodeId"]
    nodes = browser.call("DOM.querySelectorAll", nodeId=root, selector="noscript p")["nodeIds"]
    browser.call("Emulation.setScriptExecutionDisabled", value=False)
    return [] if nodes else ["nothing is said without scripts"]


# What pages of test_train_report --examples say at their top, and what they do not.
SAYS = {
    "ahead": (["Muon is ahead of AdamW by 0.5900 at the end", "a validation loss of 2.8000 against 3.3900 nats per byte",
               "after about 153 steps, 147 steps (49 %) sooner"], []),
    "level": (["Muon and AdamW end level: a validation loss of 2.8000 and 2.8000"], ["ahead"]),
    "stopped": (["Muon was stopped after 120 of 300 steps.", "Muon skipped 3 steps that had a NaN or infinity."], []),
    "no-loss": (["AdamW ended at a validation loss of"], ["ahead of"]),
    "no-step": (["Muon has no loss to show."], []),
}


def check_says(browser, path):
    wanted, unwanted = SAYS[path.stem]
    text = browser.run("document.getElementById('summary').textContent")
    found = [f"the page does not say '{part}' but '{text}'" for part in wanted if part not in text]
    return found + [f"the page says '{part}'" for part in unwanted if part in text]


def check_paper(browser, url):
    """Paper is white, whatever the reader prefers on the screen."""
    browser.show(1600, 900, "dark", "print")
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
    if path.stem in SAYS:
        results.append(("in words", check_says(browser, path)))
    results.append(("without scripts", check_without_scripts(browser, url)))
    results.append(("on paper", check_paper(browser, url)))
    return results


# What is done to a page that is right, and a part of what must be said about it.
DAMAGES = (
    ("a script fails", "</body>", "<script>throw new Error('damaged')</script></body>", "damaged"),
    ("something is fetched", "<main", "<img src='https://example.org/x.png'><main", "error"),
    ("text is too wide", "<main", f"<p style='white-space: nowrap; max-width: none'>{'wide ' * 300}</p><main",
     "sticks out"),
    ("the page is too wide", "<main", "<div style='width: 2000px'>x</div><main", "px wide in"),
    ("text overlaps", "<main", "<p>below</p><p style='margin-top: -20px'>above</p><main", "overlap"),
    ("labels of an axis overlap", "b.bottom + 17", "b.bottom + 33", "overlap"),
    ("text fades", "<main", "<p style='background: #777; color: #888'>faint</p><main", "contrast"),
    ("a line lacks a point", "'data-points': finite(series.y).length", "'data-points': 301", "points, not 301"),
    ("a line leaves its picture", "py = v => b.y(y.place(v))", "py = v => 99 + 2 * b.y(y.place(v))",
     "leaves the picture"),
    ("a line is not a number", "${at(x(value))} ", "nan ", "not numbers"),
    ("a picture has no name", "'aria-label'", "'aria-nothing'", "no name"),
    ("a number is another", "format(lookUp(key) ?? NaN)", "format(1.01 * lookUp(key))", "shown as"),
    ("a number is none", "const plural = (n, one, many) => `", "const plural = (n, one, many) => `${undefined} ",
     "NaN or undefined"),
    ("values do not follow the pointer", "'pointermove'", "'nothing'", "no values under"),
)


def check_damages(browser, path):
    """The checks find what they are there for."""
    good = path.read_text(encoding="utf-8")
    results = []
    with tempfile.TemporaryDirectory(prefix="muon-report-") as folder:
        damaged = pathlib.Path(folder) / "damaged.html"
        for name, old, new, want in DAMAGES:
            damaged.write_text(good.replace(old, new), encoding="utf-8")
            found = check_shown(browser, damaged.as_uri(), 800, "light")
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
