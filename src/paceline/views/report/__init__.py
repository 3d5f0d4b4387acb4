"""A run as one page of HTML: facts.py has what it says, page.py puts that into sections, drawing.py draws, markup.py writes HTML."""
