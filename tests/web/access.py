"""What hinders people on the page: found by axe-core, by measuring, and by walking through it with keys alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.web.screens import Screen

AXE = Path(__file__).parents[2] / "build/web/node_modules/axe-core/axe.min.js"


def obstacles(screen: Screen) -> list[str]:
    """Return what axe-core finds, with the elements."""
    # By the debugger, which the page's policy does not bind.
    screen.page.evaluate(AXE.read_text("utf-8") + ";0")
    told: dict[str, Any] = screen.page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    return [
        f"{found['id']}: {found['help']}: {node['target']} {node['any'][0]['message'] if node['any'] else ''}"
        for found in told["violations"]
        for node in found["nodes"]
    ]


def too_wide(screen: Screen) -> list[str]:
    """Return what stands out at the right of the window."""
    found: list[str] = screen.page.evaluate(
        """() => {
            const out = [...document.querySelectorAll('body *')].filter((element) => {
                const box = element.getBoundingClientRect();
                const inside = element.closest('pre, .name, .unseen, .at-home .place, [hidden]');
                return box.width && !inside && (box.right > innerWidth + 1 || box.left < -1);
            });
            const scrolls = document.scrollingElement.scrollWidth > innerWidth ? ['the page scrolls sideways'] : [];
            return [...scrolls, ...out.map((element) => element.outerHTML.slice(0, 120))];
        }"""
    )
    return found
