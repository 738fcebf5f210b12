"""What a home needs for the council."""

from __future__ import annotations

import os

from kingdom.base.disk.atomic import is_there, make_folder
from kingdom.base.home.places import Places, find_codec


def furnish(places: Places) -> None:
    _link_codec(places)
    _link_queue(places)


def _link_codec(places: Places) -> None:
    """Link the codec of the council's messages, so that it is as new as Kingdom. A file of the owner's own stays."""
    path, codec = places.codec, find_codec()
    if path.exists() and not path.is_symlink():
        return
    if not (path.is_symlink() and os.readlink(path) == str(codec)):
        make_folder(path.parent)
        path.unlink(missing_ok=True)
        path.symlink_to(codec)


def _link_queue(places: Places) -> None:
    """Link the queue of the council beside the others. What is there already stays."""
    if not is_there(places.council_link):
        places.council_link.symlink_to(os.path.relpath(places.council, places.queue))
