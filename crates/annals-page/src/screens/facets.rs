//! Facets of a listing: links that add a filter or remove it, each with the number of rows of the page. The cost is
//! that of the page.

use annals_view::words::{grouped, shortened};

use crate::filter::ThreadFilter;
use crate::html::Html;
use crate::icons::StatusShape;
use crate::limits::FACETS_MAX;

/// The facets of a filter.
pub(super) struct Facets<'f> {
    pub(super) filter: &'f ThreadFilter,
    /// The address of a filter: of threads or of messages.
    pub(super) address: fn(&ThreadFilter) -> String,
}

impl Facets<'_> {
    /// Opens the column of the facets.
    pub(super) fn begin(html: &mut Html) {
        html.open("nav", &[("class", "facets"), ("aria-label", "Filters")]);
    }

    /// Closes the column. `is_part` says that the page has not all rows.
    pub(super) fn end(html: &mut Html, is_part: bool) {
        if is_part {
            html.classed("p", "dim small facet", "Numbers of this page.");
        }
        html.close("nav");
    }

    /// Adds the most frequent values of a name.
    pub(super) fn values<'a>(
        &self,
        html: &mut Html,
        name: &'static str,
        title: &'static str,
        found: impl Iterator<Item = &'a str>,
    ) {
        let mut counts: Vec<(&str, usize)> = Vec::new();
        for value in found {
            match counts.iter_mut().find(|(seen, _)| *seen == value) {
                Some((_, count)) => *count += 1,
                None => counts.push((value, 1)),
            }
        }
        if let Some(value) = self.filter.get(name).filter(|value| counts.iter().all(|(seen, _)| seen != value)) {
            counts.push((value, 0));
        }
        if counts.is_empty() {
            return;
        }
        counts.sort_by(|a, b| (b.1, a.0).cmp(&(a.1, b.0)));
        html.open("div", &[("class", "facet")]).element("h2", &[], title);
        for (value, count) in counts.into_iter().take(FACETS_MAX) {
            self.link(html, (name, value), &shortened(value, 40), count, None);
        }
        html.close("div");
    }

    /// Adds a value of a name.
    pub(super) fn link(
        &self,
        html: &mut Html,
        (name, value): (&'static str, &str),
        word: &str,
        count: usize,
        shape: Option<StatusShape>,
    ) {
        let href = (self.address)(&self.filter.toggled(name, value));
        let mut attributes = vec![("href", href.as_str())];
        attributes.extend((self.filter.get(name) == Some(value)).then_some(("aria-current", "true")));
        html.within("a", &attributes, |html| {
            shape.into_iter().for_each(|shape| shape.add_to(html));
            html.element("bdi", &[("class", "cut")], word);
            html.classed("span", "num", &if count > 0 { grouped(count as u64) } else { String::new() });
        });
    }
}
