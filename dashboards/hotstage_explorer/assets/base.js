// SPDX-License-Identifier: Apache-2.0
// What the pages share in the browser: grow the panels that the server sent into the page, press choices, pause, and
// notice when the server is gone. It computes nothing.
(function () {
    "use strict";

    const SERVER_LOST_MS = 8000;
    let heardAt = performance.now();
    let paused = false;
    let clock = "";

    const byId = (id) => document.getElementById(id);

    // ---- panels: [tag, attributes, child, ...] or text, grown into an element with the least change ----

    const ATTRIBUTES = /^(class|title|scope|role|type|datetime|href|colspan|tabindex|aria-[a-z]+|data-[a-z]+)$/;
    const TAGS = new Set(("div span p ul ol li strong code time details summary table caption thead tbody tr th td button "
        + "dl dt dd a h1 h2 h3").split(" "));
    const OWN_PATH = /^\/(?![/\\])/;   // a link leads to a page of this server, whatever a name may be

    function dress(element, attributes) {
        for (const [name, value] of Object.entries(attributes)) {
            if (name === "key") element.dataset.key = value;
            else if (name === "fill") element.style.setProperty("--fill", `${Number(value)}%`);
            else if (name === "href" && !OWN_PATH.test(value)) element.removeAttribute("href");
            else if (ATTRIBUTES.test(name) && element.getAttribute(name) !== value) element.setAttribute(name, value);
        }
        for (const {name} of [...element.attributes]) {
            if (ATTRIBUTES.test(name) && name !== "data-key" && !(name in attributes)) element.removeAttribute(name);
        }
    }

    function seek(from, tag, key) {
        for (let at = from; at; at = at.nextSibling) {
            const isSame = at.nodeType === 1 && at.localName === tag && at.dataset.key === key;
            if (isSame) return at;
            if (key === undefined) return null;   // without a key only the next one can be the same
        }
        return null;
    }

    function grow(parent, specs) {
        let at = parent.firstChild;
        for (const spec of specs) {
            if (typeof spec === "string") {
                if (at && at.nodeType === 3) {
                    if (at.data !== spec) at.data = spec;
                    at = at.nextSibling;
                } else {
                    parent.insertBefore(document.createTextNode(spec), at);
                }
                continue;
            }
            const [tag, attributes, ...children] = spec;
            if (!TAGS.has(tag)) continue;
            const element = seek(at, tag, attributes.key) || document.createElement(tag);
            if (element === at) at = at.nextSibling;
            else parent.insertBefore(element, at);
            dress(element, attributes);
            grow(element, children);
        }
        while (at) {
            const next = at.nextSibling;
            at.remove();
            at = next;
        }
    }

    function panels(shown) {
        heardAt = performance.now();
        clock = shown.clock;
        for (const [id, specs] of Object.entries(shown.panels)) {
            const parent = byId(id);
            if (parent) grow(parent, specs);
        }
        const page = document.querySelector(".page");
        if (page) page.dataset.state = shown.state;
        document.title = `${shown.open_windows ? `(${shown.open_windows}) ` : ""}${shown.title} · hotstage`;
    }

    // ---- what people do ----

    function press(button) {
        for (const other of document.querySelectorAll(`[data-choose="${button.dataset.choose}"]`)) {
            other.setAttribute("aria-pressed", String(other === button));
        }
    }

    const deeds = {
        choose(button) {
            press(button);
            window.dash_clientside.set_props(button.dataset.choose, {data: button.dataset.value});
        },
    };
    document.addEventListener("click", (event) => {
        for (const [name, deed] of Object.entries(deeds)) {
            const at = event.target.closest(`[data-${name}]`);
            if (at) deed(at, event);
        }
    });

    setInterval(() => {
        const lost = document.querySelector(".server-lost");
        if (lost) lost.hidden = paused || document.hidden || performance.now() - heardAt < SERVER_LOST_MS;
    }, 500);

    window.hotstage = {byId, panels, press, deeds};
    window.dash_clientside = Object.assign({}, window.dash_clientside, {
        hotstage: {
            pause(_clicks, wasPaused) {
                paused = !wasPaused;
                heardAt = performance.now();
                document.body.classList.toggle("is-paused", paused);
                return [paused, paused ? "Resume" : "Pause", paused ? `Paused at ${clock}` : ""];
            },
        },
    });
}());
