"""Prints the Flesch-Kincaid grade of the prose of Markdown pages: a line with the grade and the name for each.

usage: grade.py PAGE...

The grade is about the number of years at school that a reader needs. Code, tables and headings are no prose. A word in
code font counts as one short word, because a name is read as a picture.
"""

import re
import sys

import textstat


def prose(page: str) -> str:
    page = re.sub(r"^```.*?^```", "", page, flags=re.S | re.M)
    paragraphs = [""]
    for line in page.splitlines():
        line = line.strip()
        if not line or line.startswith(("#", "|", "<", ">")):
            paragraphs.append("")
            continue
        item = re.match(r"(?:[-*]|\d+\.) (.*)", line)
        if item:
            paragraphs.append("")
            line = item[1]
        paragraphs[-1] += line + " "
    text = []
    for paragraph in filter(None, map(str.strip, paragraphs)):
        paragraph = re.sub(r"`[^`]*`", "name", paragraph)
        paragraph = re.sub(r"!?\[([^]]*)\]\([^)]*\)", r"\1", paragraph)
        paragraph = paragraph.replace("*", "")
        text.append(paragraph if paragraph[-1] in ".!?" else paragraph.rstrip(":;,") + ".")
    return " ".join(text)


for name in sys.argv[1:]:
    with open(name, encoding="utf-8") as file:
        print(f"{textstat.flesch_kincaid_grade(prose(file.read())):.1f} {name}")
