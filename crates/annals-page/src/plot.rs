//! Plots as inline SVG in percent, so that text keeps its size at any width. The policy allows no styles within a
//! document: colours are classes of the stylesheet.

use crate::html::Html;
use crate::limits::BARS_MAX;

/// The height of a plot over time: the base line, and the pixels above it.
const BASE: f64 = 150.0;
const HEIGHT: f64 = 138.0;
/// Labels below a plot over time, and the width of its widest bar in percent.
const LABELS: usize = 5;
const BAR_WIDTH: f64 = 6.0;

/// A bar of a plot: its name, its length, and the texts beside it.
pub(crate) struct Bar {
    pub(crate) name: String,
    pub(crate) value: f64,
    pub(crate) shown: String,
    pub(crate) note: String,
}

/// The time of the steps of a node: half of them and 95 % of them take at most so long.
pub(crate) struct Range {
    pub(crate) name: String,
    pub(crate) half: f64,
    pub(crate) most: f64,
    pub(crate) shown: [String; 2],
}

/// A plot over time: for each period its parts, which stand on each other, or the two ends of a span.
pub(crate) struct TimePlot<'a> {
    pub(crate) title: &'a str,
    pub(crate) note: &'a str,
    /// The classes and the names of the parts, from the base up.
    pub(crate) keys: Vec<(&'static str, String)>,
    /// The name of each period, and the sizes of its parts.
    pub(crate) periods: Vec<(String, Vec<f64>)>,
    /// Returns a size as a text.
    pub(crate) shown: &'a dyn Fn(f64) -> String,
    /// The unit of round sizes: 1, or of bytes 1,024.
    pub(crate) base: f64,
    /// True if a period is a span from its first size to its second one.
    pub(crate) is_span: bool,
}

impl TimePlot<'_> {
    /// Adds the plot; nothing if no period has a size.
    pub(crate) fn add_to(&self, html: &mut Html) {
        let size =
            |parts: &[f64]| if self.is_span { parts.iter().copied().fold(0.0, f64::max) } else { parts.iter().sum() };
        let highest = self.periods.iter().map(|(_, parts)| size(parts)).fold(0.0, f64::max);
        if highest.partial_cmp(&0.0) != Some(std::cmp::Ordering::Greater) || !highest.is_finite() {
            return;
        }
        html.open("figure", &[("class", "plot")]).open("h2", &[]).text(self.title);
        for (class, name) in self.keys.iter().filter(|(_, name)| !name.is_empty()) {
            html.open("span", &[("class", "key")]).open("svg", &[("aria-hidden", "true")]);
            if self.is_span {
                html.element("circle", &[("class", class), ("cx", "5"), ("cy", "5"), ("r", "3.5")], "");
            } else {
                html.element("rect", &[("class", class), ("width", "10"), ("height", "10"), ("rx", "2")], "");
            }
            html.close("svg").isolated(name).close("span");
        }
        html.element("small", &[], self.note).close("h2");
        html.open("svg", &[("role", "img"), ("aria-label", &format!("{}, {}", self.title, self.note))]);
        let y = |value: f64| BASE - value / highest * HEIGHT;
        line(html, "base", BASE);
        for value in ticks(highest, self.base) {
            line(html, "", y(value));
        }
        let width = 100.0 / self.periods.len().max(1) as f64;
        for (at, (name, parts)) in self.periods.iter().enumerate() {
            if size(parts) <= 0.0 {
                continue;
            }
            html.open("g", &[]).element("title", &[], &self.title_of(name, parts, size(parts)));
            if let (true, [half, most, ..]) = (self.is_span, &parts[..]) {
                self.span(html, (at as f64 + 0.5) * width, y(*half), y(*most));
            } else {
                let bar = (0.6 * width).min(BAR_WIDTH);
                self.stack(html, (at as f64 + 0.5) * width - bar / 2.0, bar, parts, highest);
            }
            html.close("g");
        }
        // The sizes stand above the bars.
        for value in ticks(highest, self.base) {
            html.element("text", &[("x", "0"), ("y", &format!("{:.1}", y(value) - 4.0))], &(self.shown)(value));
        }
        self.labels(html, width);
        html.close("svg").close("figure");
    }

    fn title_of(&self, name: &str, parts: &[f64], size: f64) -> String {
        match (self.is_span, parts) {
            (true, [half, most, ..]) => {
                format!("{name}: half within {}, 95 % within {}", (self.shown)(*half), (self.shown)(*most))
            }
            _ => format!("{name}: {}", (self.shown)(size)),
        }
    }

    fn span(&self, html: &mut Html, x: f64, half: f64, most: f64) {
        let (x, half, most) = (format!("{x:.2}%"), format!("{half:.1}"), format!("{most:.1}"));
        html.element("line", &[("class", "span"), ("x1", &x), ("x2", &x), ("y1", &half), ("y2", &most)], "");
        for ((class, _), y) in self.keys.iter().zip([&half, &most]) {
            html.element("circle", &[("class", class), ("cx", &x), ("cy", y), ("r", "3.5")], "");
        }
    }

    fn stack(&self, html: &mut Html, x: f64, width: f64, parts: &[f64], highest: f64) {
        let (x, width, mut y) = (format!("{x:.2}%"), format!("{width:.2}%"), BASE);
        for ((class, _), part) in self.keys.iter().zip(parts).filter(|(_, part)| **part > 0.0) {
            let height = (part / highest * HEIGHT).max(0.5);
            y -= height;
            // A line of the page between two parts tells them apart without their colours.
            let shown = format!("{:.1}", (height - 1.0).max(0.5));
            html.element(
                "rect",
                &[("class", class), ("x", &x), ("width", &width), ("y", &format!("{y:.1}")), ("height", &shown)],
                "",
            );
        }
    }

    /// Adds the names of some periods below the base, the newest at the right end.
    fn labels(&self, html: &mut Html, width: f64) {
        let len = self.periods.len();
        let every = len.div_ceil(LABELS).max(1);
        for at in (0..len).rev().step_by(every) {
            // A wide period has its name below its middle.
            let is_last = at + 1 == len && len > LABELS;
            let x = if is_last { "100%".to_owned() } else { format!("{:.2}%", (at as f64 + 0.5) * width) };
            let class = if is_last { "end-text" } else { "mid-text" };
            html.element("text", &[("class", class), ("x", &x), ("y", "168")], &self.periods[at].0);
        }
    }
}

/// Returns one or two round sizes below the highest one, in powers of a base above 1.
fn ticks(highest: f64, base: f64) -> impl Iterator<Item = f64> {
    let scale = if base > 1.0 { base.powf(highest.max(1.0).log(base).floor()) } else { 1.0 };
    let unit = scale * 10_f64.powf((highest / scale / 2.0).log10().floor());
    let step = [5.0, 2.0, 1.0].into_iter().map(|n| n * unit).find(|step| *step <= highest / 1.8).unwrap_or(unit);
    (1..=2).map(move |n| f64::from(n) * step).filter(move |value| *value <= highest * 1.001)
}

fn line(html: &mut Html, class: &str, y: f64) {
    let y = format!("{y:.1}");
    html.element("line", &[("class", class), ("x1", "0"), ("x2", "100%"), ("y1", &y), ("y2", &y)], "");
}

/// Adds a part of a bar, from and to parts of its scale.
pub(crate) fn bar_part(html: &mut Html, class: &str, from: f64, to: f64) {
    let part = |of: f64| if of.is_finite() { of.clamp(0.0, 1.0) * 100.0 } else { 0.0 };
    // A part of no length would not be seen.
    let (x, width) = (part(from), (part(to) - part(from)).max(0.6));
    let (x, width) = (format!("{x:.1}%"), format!("{width:.1}%"));
    html.element("rect", &[("class", class), ("x", &x), ("width", &width), ("height", "8"), ("rx", "2")], "");
}

/// Adds ranked bars on a common scale.
pub(crate) fn bars(html: &mut Html, (title, note): (&str, &str), bars: &[Bar]) {
    let highest = bars.iter().map(|bar| bar.value).fold(0.0, f64::max);
    begin(html, title, note);
    for bar in bars.iter().take(BARS_MAX) {
        let part = bar.value / highest;
        let width = format!("{:.1}%", if part.is_finite() { part.clamp(0.0, 1.0) * 100.0 } else { 0.0 });
        html.open("li", &[("class", "hbar")]).element("span", &[("class", "cut"), ("dir", "auto")], &bar.name);
        html.open("svg", &[("aria-hidden", "true")]);
        html.element("rect", &[("class", "c2"), ("width", &width), ("height", "12"), ("rx", "2")], "").close("svg");
        html.classed("span", "num", &bar.shown).classed("span", "num dim", &bar.note).close("li");
    }
    end(html, bars.len());
}

/// Adds ranked spans on a common scale.
pub(crate) fn ranges(html: &mut Html, (title, note): (&str, &str), ranges: &[Range]) {
    let highest = ranges.iter().map(|range| range.most).fold(0.0, f64::max);
    begin(html, title, note);
    for range in ranges.iter().take(BARS_MAX) {
        // The circles stand within the scale.
        let x = |of: f64| format!("{:.1}%", if highest > 0.0 { 1.0 + of / highest * 97.0 } else { 1.0 });
        let (half, most) = (x(range.half), x(range.most));
        html.open("li", &[("class", "hbar")]).element("span", &[("class", "cut"), ("dir", "auto")], &range.name);
        html.open("svg", &[("aria-hidden", "true")]);
        html.element("line", &[("x1", &half), ("x2", &most), ("y1", "6"), ("y2", "6")], "");
        html.element("circle", &[("class", "c1"), ("cx", &half), ("cy", "6"), ("r", "4")], "");
        html.element("circle", &[("class", "p95"), ("cx", &most), ("cy", "6"), ("r", "3.5")], "").close("svg");
        html.classed("span", "num", &range.shown[0]).classed("span", "num dim", &range.shown[1]).close("li");
    }
    end(html, ranges.len());
}

fn begin(html: &mut Html, title: &str, note: &str) {
    html.open("figure", &[("class", "plot")]).open("h2", &[]).text(title).element("small", &[], note).close("h2");
    html.open("ol", &[]);
}

fn end(html: &mut Html, len: usize) {
    html.close("ol");
    if len == 0 {
        html.classed("p", "dim", "nothing was recorded");
    }
    if len > BARS_MAX {
        html.classed("p", "dim", &format!("{} more", len - BARS_MAX));
    }
    html.close("figure");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_below_the_highest_size() {
        for (highest, base, expected) in [
            (7.5, 1.0, &[2.0, 4.0][..]),
            (10.0, 1.0, &[5.0, 10.0]),
            (0.034, 1.0, &[0.01, 0.02]),
            (2_630_000.0, 1.0, &[1e6, 2e6]),
            (5_632.0, 1_024.0, &[2_048.0, 4_096.0]),
            (700.0, 1_024.0, &[200.0, 400.0]),
        ] {
            let found: Vec<f64> = ticks(highest, base).collect();
            assert_eq!(found.len(), expected.len(), "{highest}: {found:?}");
            assert!(found.iter().zip(expected).all(|(a, b)| (a - b).abs() < highest / 1e6), "{highest}: {found:?}");
        }
    }

    #[test]
    fn a_plot_over_time_has_a_stack_for_each_period_with_a_size() {
        let plot = |periods| TimePlot {
            title: "Tokens",
            note: "by day",
            keys: vec![("c2", "in".into()), ("c1", "out".into())],
            periods,
            shown: &|value| format!("{value}"),
            base: 1.0,
            is_span: false,
        };
        let shown = |periods| {
            let mut html = Html::new();
            plot(periods).add_to(&mut html);
            html.into_markup()
        };
        let day = |name: &str, parts: [f64; 2]| (name.to_owned(), parts.to_vec());
        let both = shown(vec![day("1 Nov", [2.0, 2.0]), day("2 Nov", [0.0, 0.0]), day("3 Nov", [4.0, 0.0])]);
        assert_eq!((both.matches("<g>").count(), both.matches("<rect").count()), (2, 2 + 3), "{both}");
        assert!(both.contains("<title>1 Nov: 4</title>") && both.contains(">3 Nov</text>"), "{both}");
        assert_eq!(shown(vec![day("1 Nov", [0.0, 0.0])]), "");
        assert_eq!(shown(vec![day("1 Nov", [f64::INFINITY, 0.0])]), "");
    }
}
