"""Links that lead out of docs lead to the repository on the site."""

import re

REPOSITORY = "https://github.com/berth-scheduler/berth/blob/main/"


def on_page_markdown(markdown, **_):
    return re.sub(r"\]\(\.\./", "](" + REPOSITORY, markdown)
