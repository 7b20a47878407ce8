//! Small tables of HTML for notebooks. Invariant: no text of the data becomes a tag.

use annals::base::Value;

/// Characters of a cell that are shown.
const CELL_CHARS: usize = 120;

/// Returns a text with the characters of HTML escaped.
pub(crate) fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            '\n' | '\t' => safe.push(c),
            c if c.is_control() => safe.push('\u{fffd}'),
            c => safe.push(c),
        }
    }
    safe
}

/// Returns a table with a caption. A cell is cut to its first characters.
pub(crate) fn table(caption: &str, names: &[&str], rows: &[Vec<String>]) -> String {
    let mut html = format!("<table><caption>{}</caption><thead><tr>", escaped(caption));
    html.extend(names.iter().map(|name| format!("<th>{}</th>", escaped(name))));
    html.push_str("</tr></thead><tbody>");
    for row in rows {
        html.push_str("<tr>");
        html.extend(row.iter().map(|cell| format!("<td style=\"text-align:left\">{}</td>", escaped(&cut(cell)))));
        html.push_str("</tr>");
    }
    html.push_str("</tbody></table>");
    html
}

/// Returns a value as the text of a cell.
pub(crate) fn cell(value: &Value) -> String {
    match value {
        Value::Str(text) => text.clone(),
        Value::List(items) => format!("{} items", items.len()),
        other => other.big_integer().map_or_else(|| other.to_json().to_string(), ToOwned::to_owned),
    }
}

fn cut(text: &str) -> String {
    match text.char_indices().nth(CELL_CHARS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
