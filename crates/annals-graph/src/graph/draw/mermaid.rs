//! Mermaid text, equal to that of the reference.

use std::collections::HashSet;
use std::fmt::Write as _;

use super::{Drawing, DrawingEdge, DrawingNode};

const HEAD: &str = "---\nconfig:\n  flowchart:\n    curve: linear\n---\n";
const STYLES: &str =
    "\tclassDef default fill:#f2f0ff,line-height:1.2\n\tclassDef first fill-opacity:0\n\tclassDef last fill:#bfb6fc\n";
/// Words after which a line of a label is broken.
const LABEL_LINE_WORDS: usize = 9;

impl Drawing {
    /// Returns the drawing as a Mermaid flowchart (`draw_mermaid`). Without styles it leaves out nodes without edges,
    /// the labels and shapes of nodes, and colours.
    ///
    /// The text equals that of the reference, except that two subgraphs of one name, which the reference refuses, get
    /// distinct ids.
    #[doc(alias = "draw_mermaid")]
    pub fn to_mermaid(&self, with_styles: bool) -> String {
        let mut chart = Chart::new(self, with_styles);
        if with_styles {
            chart.text.push_str(HEAD);
        }
        chart.text.push_str("graph TD;\n");
        if with_styles {
            self.nodes.iter().filter(|node| !node.id.contains(':')).for_each(|node| chart.node(node));
        }
        chart.group("");
        let groups: Vec<String> = chart.groups.iter().map(|(prefix, _)| prefix.clone()).collect();
        for prefix in groups.iter().filter(|prefix| !prefix.is_empty() && !prefix.contains(':')) {
            chart.group(prefix);
        }
        if with_styles {
            chart.subgraphs_without_edges();
            chart.text.push_str(STYLES);
        }
        chart.text
    }
}

/// A flowchart under construction.
struct Chart<'a> {
    drawing: &'a Drawing,
    with_styles: bool,
    first: Option<&'a str>,
    last: Option<&'a str>,
    /// The edges by the common prefix of the names of both ends, in the order of the first edge of each.
    groups: Vec<(String, Vec<&'a DrawingEdge>)>,
    /// The opened subgraphs, by their own name.
    seen: HashSet<String>,
    text: String,
}

impl<'a> Chart<'a> {
    fn new(drawing: &'a Drawing, with_styles: bool) -> Self {
        let mut groups: Vec<(String, Vec<&DrawingEdge>)> = Vec::new();
        for edge in &drawing.edges {
            let prefix = common(&edge.source, &edge.target);
            match groups.iter_mut().find(|(known, _)| *known == prefix) {
                Some((_, edges)) => edges.push(edge),
                None => groups.push((prefix, vec![edge])),
            }
        }
        let first = drawing.first(None).map(|node| &*node.id);
        let last = drawing.last(None).map(|node| &*node.id);
        Self { drawing, with_styles, first, last, groups, seen: HashSet::new(), text: String::new() }
    }

    fn node(&mut self, node: &DrawingNode) {
        let name = node.name();
        let is_special = |c: Option<char>| c.is_some_and(|c| "*_`".contains(c));
        let mut label = match is_special(name.chars().next()) && is_special(name.chars().last()) {
            true => format!("<p>{name}</p>"),
            false => name.to_owned(),
        };
        let notes: Vec<String> = node.notes().iter().map(|note| escaped(note)).collect();
        if !notes.is_empty() {
            _ = write!(label, "<hr/><small><em>{}</em></small>", notes.join("\n"));
        }
        let id = safe(&node.id);
        // A node that is first and last is drawn as the last.
        _ = match () {
            () if self.last == Some(&node.id) => writeln!(self.text, "\t{id}([{label}]):::last"),
            () if self.first == Some(&node.id) => writeln!(self.text, "\t{id}([{label}]):::first"),
            () => writeln!(self.text, "\t{id}({label})"),
        };
    }

    /// Writes the edges of a subgraph, and its direct subgraphs.
    fn group(&mut self, prefix: &str) {
        let found = self.groups.iter().find(|(known, _)| known == prefix);
        let edges = found.map(|(_, edges)| edges.clone()).unwrap_or_default();
        let only_a_loop = matches!(edges.as_slice(), [one] if one.source == one.target);
        let opens = !prefix.is_empty() && !only_a_loop;
        if opens {
            self.open(prefix);
        }
        edges.iter().for_each(|edge| self.edge(edge));
        let inner: Vec<String> = self.groups.iter().map(|(known, _)| known.clone()).collect();
        for known in &inner {
            let rest = known.strip_prefix(prefix).and_then(|rest| rest.strip_prefix(':'));
            if rest.is_some_and(|rest| !rest.contains(':')) {
                self.group(known);
            }
        }
        if opens {
            self.text.push_str("\tend\n");
        }
    }

    fn open(&mut self, prefix: &str) {
        let name = prefix.rsplit(':').next().unwrap_or(prefix);
        _ = match self.seen.insert(name.to_owned()) {
            true => writeln!(self.text, "\tsubgraph {name}"),
            false => writeln!(self.text, "\tsubgraph {} [{name}]", safe(prefix)),
        };
        if self.with_styles {
            let drawing = self.drawing;
            drawing.nodes.iter().filter(|node| around(node) == Some(prefix)).for_each(|node| self.node(node));
        }
    }

    fn edge(&mut self, edge: &DrawingEdge) {
        let arrow = match (&edge.label, edge.conditional) {
            (Some(label), true) => format!(" -. &nbsp;{}&nbsp; .-> ", wrapped(label)),
            (Some(label), false) => format!(" -- &nbsp;{}&nbsp; --> ", wrapped(label)),
            (None, true) => " -.-> ".into(),
            (None, false) => " --> ".into(),
        };
        _ = writeln!(self.text, "\t{}{arrow}{};", safe(&edge.source), safe(&edge.target));
    }

    fn subgraphs_without_edges(&mut self) {
        let drawing = self.drawing;
        let grouped: HashSet<&str> = drawing.nodes.iter().filter_map(around).collect();
        for prefix in drawing.nodes.iter().filter_map(around) {
            let is_drawn = self.seen.contains(prefix) || self.groups.iter().any(|(known, _)| known == prefix);
            if !prefix.contains(':') && grouped.contains(prefix) && !is_drawn {
                self.open(prefix);
                self.text.push_str("\tend\n");
            }
        }
    }
}

/// Returns the prefix of a node in a subgraph.
fn around(node: &DrawingNode) -> Option<&str> {
    node.id.rsplit_once(':').map(|(around, _)| around)
}

/// Returns the common prefix of the names in two ids.
fn common(source: &str, target: &str) -> String {
    let same = source.split(':').zip(target.split(':')).filter(|(source, target)| source == target);
    same.map(|(name, _)| name).collect::<Vec<_>>().join(":")
}

/// Writes an id with letters, digits, `_` and `-` only; every other character as its code.
fn safe(id: &str) -> String {
    let mut out = String::with_capacity(id.len());
    for c in id.chars() {
        match c.is_ascii_alphanumeric() || c == '_' || c == '-' {
            true => out.push(c),
            false => _ = write!(out, "\\{:x}", u32::from(c)),
        }
    }
    out
}

fn wrapped(label: &str) -> String {
    let words: Vec<&str> = label.split_whitespace().collect();
    if words.len() <= LABEL_LINE_WORDS {
        return label.to_owned();
    }
    words.chunks(LABEL_LINE_WORDS).map(|line| line.join(" ")).collect::<Vec<_>>().join("&nbsp<br>&nbsp")
}

/// Writes the characters that have a meaning in a label as codes.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '"' => out.push_str("#quot;"),
            '#' | '[' | ']' | '(' | ')' | '{' | '}' | '<' | '>' | '|' => _ = write!(out, "#{};", u32::from(c)),
            c => out.push(c),
        }
    }
    out
}
