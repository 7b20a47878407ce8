//! Plots as inline SVG. The policy allows no styles within a document, so colours are classes of the stylesheet.

use crate::html::Html;
use crate::limits::BARS_MAX;

/// A bar of a plot: its name, its height, and the text that states the height.
pub(crate) struct Bar {
    pub(crate) name: String,
    pub(crate) value: f64,
    pub(crate) shown: String,
}

/// Adds a bar that shows a part of a whole.
pub(crate) fn share(html: &mut Html, part: f64, label: &str) {
    let part = if part.is_finite() { part.clamp(0.0, 1.0) } else { 0.0 };
    let width = format!("{:.1}", part * 100.0);
    let attributes = [
        ("class", "share"),
        ("width", "100"),
        ("height", "10"),
        ("viewBox", "0 0 100 10"),
        ("preserveAspectRatio", "none"),
        ("role", "img"),
        ("aria-label", label),
    ];
    html.within("svg", &attributes, |html| {
        html.element("rect", &[("x", "0"), ("y", "0"), ("width", &width), ("height", "10")], "");
    });
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
        ("class", "share fall"),
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

/// Adds a table whose rows have bars on a common scale.
pub(crate) fn bars(html: &mut Html, title: &str, bars: &[Bar]) {
    let highest = bars.iter().map(|bar| bar.value).fold(0.0, f64::max);
    html.within("figure", &[], |html| {
        html.element("figcaption", &[], title);
        html.within("table", &[("class", "bars")], |html| {
            for bar in bars.iter().take(BARS_MAX) {
                html.within("tr", &[], |html| {
                    html.element("th", &[("scope", "row")], &bar.name);
                    html.within("td", &[], |html| share(html, bar.value / highest, &bar.shown));
                    html.classed("td", "number", &bar.shown);
                });
            }
        });
        if bars.is_empty() {
            html.classed("p", "dim", "nothing was recorded");
        }
        if bars.len() > BARS_MAX {
            html.classed("p", "dim", &format!("{} more", bars.len() - BARS_MAX));
        }
    });
}
