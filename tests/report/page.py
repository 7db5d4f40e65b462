# SPDX-License-Identifier: Apache-2.0
"""A report's page, taken apart: elements, texts, data, and what is wrong with its structure."""
import base64
import hashlib
import html.parser
import json
import re

VOID = {'meta', 'input', 'br', 'link', 'img', 'hr'}
# attributes by which a page reaches for something else
REFERENCES = {'src', 'href', 'xlink:href', 'action', 'formaction', 'data', 'poster', 'srcset', 'background', 'ping', 'cite', 'style'}


class Page(html.parser.HTMLParser):
    """faults: what is wrong; elements: (tag, attributes, text); data: the parsed JSON or None."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.faults, self.elements, self.open, self.ids = [], [], [], set()
        self.policy = None
        self.feed(text)
        self.close()
        if self.open:
            self.faults.append('not closed: %s' % [tag for tag, _ in self.open])
        self.data = None
        programs = [e for e in self.elements if e[0] == 'script']
        for _, attributes, body in programs:
            if attributes.get('type') == 'application/json':
                self.data = json.loads(body)
            elif "'sha256-%s'" % self.digest(body) not in (self.policy or ''):
                self.faults.append('a script that the policy does not allow: %.60r' % body)
        for _, _, body in (e for e in self.elements if e[0] == 'style'):
            if "'sha256-%s'" % self.digest(body) not in (self.policy or ''):
                self.faults.append('a style that the policy does not allow')
        if not (self.policy or '').startswith("default-src 'none'"):
            self.faults.append('no Content-Security-Policy: %r' % self.policy)
        for tag, attributes, _ in self.elements:
            for key in ('aria-labelledby', 'aria-describedby', 'for'):
                for name in (attributes.get(key) or '').split():
                    if name not in self.ids:
                        self.faults.append('%s of %s names no element: %s' % (key, tag, name))

    @staticmethod
    def digest(text):
        return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        for key, value in attrs:
            inside = key == 'href' and (value or '').startswith('#')
            if (key in REFERENCES and not inside) or key.startswith('on'):
                self.faults.append('%s has %s=%r' % (tag, key, value))
        if 'id' in attributes:
            if attributes['id'] in self.ids:
                self.faults.append('two elements have the id %s' % attributes['id'])
            self.ids.add(attributes['id'])
        if tag == 'meta' and attributes.get('http-equiv') == 'Content-Security-Policy':
            self.policy = attributes['content']
        entry = [tag, attributes, '']
        self.elements.append(entry)
        if tag not in VOID:
            self.open.append((tag, entry))

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        if not self.open or self.open[-1][0] != tag:
            self.faults.append('</%s> closes %s' % (tag, self.open[-1][0] if self.open else 'nothing'))
        else:
            self.open.pop()

    def handle_data(self, data):
        for _, entry in self.open:
            entry[2] += data

    def texts(self, tag):
        return [e[2] for e in self.elements if e[0] == tag]

    def rows(self, caption):
        """Cells of the table with such a caption, a list for each row."""
        inside, rows = False, []
        for tag, attributes, text in self.elements:
            if tag == 'table':
                inside = False
            elif tag == 'caption':
                inside = re.search(caption, text) is not None
            elif inside and tag == 'tr':
                rows.append([])
            elif inside and tag in ('td', 'th'):
                rows[-1].append(text)
        return rows

    # ---- the data ----

    def name(self, tensor):
        return self.data['layers'][tensor['l']] + tensor['n']

    def parts(self, tensor):
        """(file, [(start, count) of each axis]) of each part: one axis for flat parts."""
        n = 1
        for k in tensor['s']:
            n *= k
        out, at, p = [], 0, tensor.get('p', [])
        for k in range(0, len(p), 3):
            for j in range(p[k + 2]):
                out.append((p[k] + j if p[k] >= 0 else -1, [(at, min(p[k + 1], n - at))]))
                at += p[k + 1]
        for box in tensor.get('b', []):
            out.append((box[0], list(zip(box[1::2], box[2::2]))))
        return out
