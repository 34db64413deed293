"""Write pages of the document's functions and types, and of decisions where it is contradictory or silent.

``functions.py`` writes a page as Markdown from the data that the code runs on. ``evidence.py`` says what shows each
sentence, ``examples.py`` finds calls to copy, and ``command.py`` is `dualdnn show`. The site (docs/conf.py) has all
pages.
"""
