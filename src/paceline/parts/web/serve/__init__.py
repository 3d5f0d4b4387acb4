"""HTTP over recordings, as a process of its own: `app.App.answer` is pure but for what it reads, `server.py` has the socket."""
