"""Texts that nobody should write, and the elements of a page of HTML."""

from html.parser import HTMLParser

HOSTILE = (
    "</script><img src=x onerror=alert(1)>", "<!-- ", "]]>", "&lt;b&gt;", "\" onload='x'", "\x00", "\x1b[31mred\x1b[0m", "\u202egnp.exe",
    "\u2028", "a" * 5000, "\ud800", "\x1b]8;;http://a\x07link", "</title></style>", "<details open>",
)  # fmt: skip


class Tree(HTMLParser):
    """The elements and attributes of a page, without its texts."""

    def __init__(self, page):
        super().__init__(convert_charrefs=True)
        self.elements, self.attributes, self.texts = [], [], []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, tuple(name for name, _ in attributes)))
        self.attributes.append((tag, tuple(attributes)))

    def handle_comment(self, data):
        self.elements.append(("comment", ()))

    def handle_data(self, data):
        self.texts.append(data)
