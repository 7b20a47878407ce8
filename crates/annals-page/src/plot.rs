//! Plots as inline SVG. The policy allows no styles within a document, so colours are classes of the stylesheet.

use crate::html::Html;
use crate::limits::BARS_MAX;

/// A bar of a plot: its name, its height, and the text that states the height.
pub(crate) struct Bar {
    pub(crate) name: String,
    pub(crate) value: f64,
    pub(crate) shown: String,
}

/// A part of a lane: where it begins and ends, as parts of the scale, and its class.
pub(crate) struct LanePart {
    pub(crate) from: f64,
    pub(crate) to: f64,
    pub(crate) class: &'static str,
}

/// Adds a lane of a waterfall: its parts on the scale of all lanes.
pub(crate) fn lane(html: &mut Html, parts: &[LanePart], label: &str) {
    let attributes = [
        ("class", "spans"),
        ("width", "100%"),
        ("height", "12"),
        ("viewBox", "0 0 1000 12"),
        ("preserveAspectRatio", "none"),
        ("role", "img"),
        ("aria-label", label),
    ];
    html.within("svg", &attributes, |html| {
        for part in parts.iter().take(BARS_MAX) {
            let from = if part.from.is_finite() { part.from.clamp(0.0, 1.0) } else { 0.0 };
            let to = if part.to.is_finite() { part.to.clamp(from, 1.0) } else { from };
            // A part of no length would not be seen.
            let x = (from * 1_000.0).min(996.0);
            let (x, width) = (format!("{x:.1}"), format!("{:.1}", (to * 1_000.0 - x).max(4.0)));
            html.element(
                "rect",
                &[("x", &x), ("y", "0"), ("width", &width), ("height", "12"), ("class", part.class)],
                "",
            );
        }
    });
}

/// Adds ranked bars on a common scale.
pub(crate) fn bars(html: &mut Html, title: &str, bars: &[Bar]) {
    let highest = bars.iter().map(|bar| bar.value).fold(0.0, f64::max);
    html.open("figure", &[("class", "plot")]).element("h2", &[], title);
    for bar in bars.iter().take(BARS_MAX) {
        let part = bar.value / highest;
        let width = format!("{:.1}%", if part.is_finite() { part.clamp(0.0, 1.0) * 100.0 } else { 0.0 });
        html.open("div", &[("class", "hbar")]).element("span", &[("class", "cut"), ("dir", "auto")], &bar.name);
        html.open("svg", &[("aria-hidden", "true")]);
        html.element("rect", &[("class", "c2"), ("width", &width), ("height", "12"), ("rx", "2")], "").close("svg");
        html.classed("span", "num", &bar.shown).close("div");
    }
    if bars.is_empty() {
        html.classed("p", "dim", "nothing was recorded");
    }
    if bars.len() > BARS_MAX {
        html.classed("p", "dim", &format!("{} more", bars.len() - BARS_MAX));
    }
    html.close("figure");
}
