// SPDX-License-Identifier: Apache-2.0
// The browser's half of the pages beside Heat: links that change the page's state without loading it anew, and charts
// that the server made, redrawn only where they differ. base.js has what all pages share. It computes nothing.
(function () {
    "use strict";

    const {byId, panels} = window.hotstage;
    const CONFIG = {
        displayModeBar: false, displaylogo: false, showSendToCloud: false, showEditInChartStudio: false, responsive: true,
        scrollZoom: false, doubleClick: "reset",
    };
    const NARROW_PX = 560;
    const drawn = new Map();   // identity -> the figure it shows, as text
    let pending = null;
    let held = false;          // the pointer is down: a redraw would end the drag
    let wanted = false;        // somebody followed a link to another item: show its beginning

    const key = () => document.querySelector(".page").id.replace(/-page$/, "");
    const own = () => document.querySelector("nav [aria-current=page]").getAttribute("href");
    const here = () => window.location.pathname + window.location.search;

    function go(href, isPush) {
        if (isPush && href !== here()) window.history.pushState({}, "", href);
        window.dash_clientside.set_props(`${key()}-where`, {data: here()});
    }

    window.hotstage.deeds.go = (link, event) => {
        const isPlain = !event.defaultPrevented && event.button === 0
            && !(event.metaKey || event.ctrlKey || event.shiftKey || event.altKey);
        const href = link.getAttribute("href");
        if (!isPlain || !href || !href.startsWith(own())) return;   // another page is loaded as any other
        event.preventDefault();
        wanted = new URL(href, window.location.href).pathname !== window.location.pathname;
        go(href, true);
    };
    window.addEventListener("popstate", () => {
        const page = document.querySelector(".page");
        if (page && page.id !== "heat-page") go(here(), false);
    });
    window.addEventListener("pointerdown", (event) => { held = Boolean(event.target.closest(".chart")); }, true);
    for (const name of ["pointerup", "pointercancel", "blur"]) {
        window.addEventListener(name, () => { if (held) { held = false; setTimeout(flush, 50); } }, true);
    }

    function draw(at, figure) {
        const text = figure ? JSON.stringify(figure) : "";
        if ((drawn.get(at.id) || "") === text && (!figure || at.data)) return;
        drawn.set(at.id, text);
        at.hidden = !figure;
        if (!figure) {
            if (at.data) window.Plotly.purge(at);
            return;
        }
        const layout = {...figure.layout};
        // A finger that scrolls the page must not be caught by a chart.
        if (window.matchMedia("(pointer: coarse)").matches) layout.dragmode = false;
        at.style.height = `${layout.height}px`;
        // What stands at the end of a bar needs a larger share of a narrow drawing.
        const isNarrow = at.clientWidth < NARROW_PX && layout.meta && layout.meta.narrow;
        if (isNarrow) layout.xaxis = {...layout.xaxis, ...layout.meta.narrow};
        const isNew = !at.data;
        window.Plotly.react(at, figure.data, layout, CONFIG);
        at.dataset.updates = String(Number(at.dataset.updates || 0) + 1);
        if (isNew) at.on("plotly_click", (event) => {
            const {data, pointNumber} = event.points[0];
            const href = data.meta && data.meta.hrefs && data.meta.hrefs[pointNumber];
            if (typeof href === "string" && /^\/(?![/\\])/.test(href)) {
                wanted = true;
                go(href, true);
            }
        });
    }

    function flush() {
        if (!pending || !window.Plotly || held || document.hidden) return;
        const began = performance.now();
        const charts = pending;
        pending = null;
        for (const [id, figure] of Object.entries(charts)) {
            const at = byId(id);
            if (at) draw(at, figure);
        }
        document.querySelector(".page").dataset.chartsMs = (performance.now() - began).toFixed(1);
    }

    document.addEventListener("visibilitychange", flush);
    setInterval(flush, 300);

    Object.assign(window.dash_clientside.hotstage, {
        start: here,
        show_live(shown) {
            const skip = window.dash_clientside.no_update;
            if (!shown) return skip;
            const began = performance.now();
            panels(shown);
            pending = shown.charts;
            flush();
            const page = document.querySelector(".page");
            page.dataset.version = shown.version;
            page.dataset.updateMs = (performance.now() - began).toFixed(1);
            if (wanted) {
                wanted = false;
                window.scrollTo({top: 0});
                const head = document.querySelector("main h1");
                if (head) head.focus({preventScroll: true});
            }
            return shown.version;
        },
    });
}());
