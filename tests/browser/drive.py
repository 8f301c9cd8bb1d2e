"""Drives a headless Chromium over its debugging pipe and checks the report.

Owns the conversation (JSON messages ending in a zero byte on descriptors 3 and 4) and the checks.
Uses the standard library only. Called by check.sh: drive.py BROWSER REPORT SCREENSHOTS PROFILE.
"""

import base64
import json
import os
import pathlib
import select
import struct
import subprocess
import sys
import time

WIDTHS = (360, 800, 1400)
LIMIT = 60.0
MEASURE = """(() => {
  const page = document.scrollingElement;
  const rgb = getComputedStyle(document.documentElement).backgroundColor;
  const wide = [...document.querySelectorAll('body *')].filter(e => !e.closest('.scroll,.plot') &&
    e.getBoundingClientRect().right > innerWidth + 1).map(e => e.tagName + '.' + e.className);
  const plots = [...document.querySelectorAll('svg')];
  const texts = [...document.querySelectorAll('svg text')]
    .filter(t => t.closest('svg').checkVisibility());
  const out = texts.filter(t => {
    const a = t.getBoundingClientRect(), b = t.closest('svg').getBoundingClientRect();
    return a.left < b.left - 1 || a.right > b.right + 1 ||
      a.top < b.top - 1 || a.bottom > b.bottom + 1;
  });
  let over = 0;
  for (const svg of plots) {
    const boxes = [...svg.querySelectorAll('text')].map(t => t.getBoundingClientRect());
    for (let i = 0; i < boxes.length; i++) for (let j = i + 1; j < boxes.length; j++) {
      const a = boxes[i], b = boxes[j];
      const x = Math.min(a.right, b.right) - Math.max(a.left, b.left);
      const y = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
      if (x > 2 && y > 4) over++;
    }
  }
  return JSON.stringify({scroll: page.scrollWidth, inner: innerWidth, background: rgb,
    wide: wide.slice(0, 5), height: page.scrollHeight, plots: plots.length,
    outside: out.map(t => t.textContent).slice(0, 5), over});
})()"""


class Browser:
    """One headless browser with one page."""

    def __init__(self, program, profile):
        to_child, self.write_end = os.pipe()
        self.read_end, from_child = os.pipe()
        # Into descriptors 3 and 4, by way of high ones: any of the four may be 3 or 4 already.
        shell = 'exec 3<&"$1" 4>&"$2"; shift 2; exec "$@"'
        call = [
            program,
            "--headless=new",
            "--remote-debugging-pipe",
            "--no-first-run",
            "--disable-gpu",
            "--hide-scrollbars",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--no-default-browser-check",
            "--host-resolver-rules=MAP * ~NOTFOUND",
            f"--user-data-dir={profile}",
        ]
        if os.geteuid() == 0:
            call.append("--no-sandbox")
        self.process = subprocess.Popen(
            ["bash", "-c", shell, "bash", str(to_child), str(from_child), *call, "about:blank"],
            pass_fds=(to_child, from_child),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_child)
        os.close(from_child)
        self.rest, self.number, self.events, self.session = b"", 0, [], None
        page = [t for t in self.call("Target.getTargets")["targetInfos"] if t["type"] == "page"]
        target = (
            page[0]["targetId"]
            if page
            else self.call("Target.createTarget", url="about:blank")["targetId"]
        )
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)[
            "sessionId"
        ]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(domain + ".enable")

    def message(self):
        end = time.monotonic() + LIMIT
        while b"\0" not in self.rest:
            ready, _, _ = select.select([self.read_end], [], [], max(0.0, end - time.monotonic()))
            part = os.read(self.read_end, 1 << 20) if ready else b""
            if not part:
                raise RuntimeError("the browser ended or says nothing")
            self.rest += part
        text, self.rest = self.rest.split(b"\0", 1)
        return json.loads(text)

    def call(self, method, **params):
        self.number += 1
        request = {"id": self.number, "method": method, "params": params}
        if self.session:
            request["sessionId"] = self.session
        os.write(self.write_end, json.dumps(request).encode() + b"\0")
        while True:
            answer = self.message()
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]
            self.events.append(answer)

    def open(self, url):
        self.events.clear()
        self.call("Page.navigate", url=url)
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self.events.append(self.message())

    def evaluate(self, script):
        return self.call("Runtime.evaluate", expression=script, returnByValue=True)["result"].get(
            "value"
        )

    def complaints(self):
        """Console errors, exceptions, and requests for anything but local files."""
        found = []
        for event in self.events:
            name, params = event.get("method"), event.get("params", {})
            if name == "Runtime.exceptionThrown" or (
                name == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning")
            ):
                found.append(json.dumps(params)[:200])
            if name == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
                found.append(params["entry"]["text"])
            if name == "Network.requestWillBeSent" and not params["request"]["url"].startswith(
                ("file:", "data:")
            ):
                found.append("asks for " + params["request"]["url"])
        return found

    def close(self):
        try:
            self.call("Browser.close")
        except (RuntimeError, OSError):
            pass
        try:
            self.process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class Count:
    """Checks that passed and failed, each printed."""

    def __init__(self, made_up):
        self.passed = self.failed = 0
        self.made_up = made_up

    def check(self, good, what, detail=""):
        self.passed += bool(good)
        self.failed += not good
        print(
            f"browser: {'ok    ' if good else 'FAILED'} {what}{'' if good else ': ' + str(detail)}"
        )

    def check_labels(self, good, what, detail):
        """Where labels fall depends on the data: decisive for the made-up report only."""
        if good or self.made_up:
            self.check(good, what, detail)
        else:
            print(f"browser: remark {what}: not so: {detail}")


def luminance(colour):
    parts = colour[colour.index("(") + 1:colour.index(")")].split(",")
    return sum(float(part) for part in parts[:3]) / 3


def shoot(browser, path, width, height):
    # Taller than this and the browser may refuse the surface; the top of a page shows what matters.
    clip = {"x": 0, "y": 0, "width": width, "height": min(height, 16000), "scale": 1}
    data = browser.call(
        "Page.captureScreenshot", format="png", clip=clip, captureBeyondViewport=True
    )["data"]
    path.write_bytes(base64.b64decode(data))
    head = path.read_bytes()[:24]
    return head[:8] == b"\x89PNG\r\n\x1a\n" and struct.unpack(">I", head[16:20])[0] == width


def look(browser, url, shots, count):
    for width in WIDTHS:
        for theme in ("light", "dark"):
            name = f"{width} px, {theme}"
            browser.call(
                "Emulation.setDeviceMetricsOverride",
                width=width,
                height=900,
                deviceScaleFactor=1,
                mobile=width < 600,
            )
            browser.call(
                "Emulation.setEmulatedMedia",
                features=[{"name": "prefers-color-scheme", "value": theme}],
            )
            browser.open(url)
            seen = json.loads(browser.evaluate(MEASURE))
            count.check(
                seen["scroll"] <= seen["inner"] == width,
                f"{name}: the page does not scroll sideways",
                seen,
            )
            count.check(
                not seen["wide"],
                f"{name}: nothing outside a scrolling box is wider than the page",
                seen["wide"],
            )
            count.check(
                (luminance(seen["background"]) < 80) == (theme == "dark"),
                f"{name}: theme follows the system",
                seen["background"],
            )
            count.check(seen["plots"] > 0, f"{name}: there are plots")
            count.check_labels(
                not seen["outside"], f"{name}: labels of plots lie inside them", seen["outside"]
            )
            count.check_labels(
                seen["over"] == 0, f"{name}: labels of plots do not overlap", seen["over"]
            )
            complaints = browser.complaints()
            count.check(not complaints, f"{name}: no console errors, no requests", complaints)
            count.check(
                shoot(browser, shots / f"{width}-{theme}.png", width, seen["height"]),
                f"{name}: screenshot",
            )
            other = "light" if theme == "dark" else "dark"
            browser.evaluate(f"document.getElementById('theme-{other}').click()")
            background = browser.evaluate(
                "getComputedStyle(document.documentElement).backgroundColor"
            )
            count.check(
                (luminance(background) < 80) == (other == "dark"),
                f"{name}: the switch turns it {other}",
                background,
            )


def main():
    program, report, shots, profile, data = sys.argv[1:6]
    count = Count(made_up=data == "made-up")
    browser = None
    try:
        browser = Browser(program, profile)
        print("browser:", browser.call("Browser.getVersion")["product"])
        look(browser, pathlib.Path(report).resolve().as_uri(), pathlib.Path(shots), count)
    except (RuntimeError, OSError) as error:
        count.check(False, "conversation with the browser", error)
    finally:
        if browser:
            browser.close()
    print(f"{count.passed} passed, {count.failed} failed")
    return 1 if count.failed or not count.passed else 0


if __name__ == "__main__":
    sys.exit(main())
