//! Values as indented XML for a model to read, as `format_as_xml` writes them.
//!
//! *Absent:* reading it, and classes with their names: a value has none.

use annals_base::Value;
use annals_messages::internal::{py_str, xml_escape};

/// The element of an item, and of a member whose name cannot be that of an element.
const ITEM: &str = "item";

/// Returns the value in an element `tag`; without one, the elements of its members or items on lines of their own.
pub(super) fn value_xml(value: &Value, tag: Option<&str>) -> String {
    let mut out = String::new();
    match (tag, value) {
        (None, Value::List(_) | Value::Map(_)) => {
            for (at, (name, key, child)) in children(value).into_iter().enumerate() {
                out.push_str(if at == 0 { "" } else { "\n" });
                element(&mut out, name, key, child, 0);
            }
        }
        (tag, value) => element(&mut out, tag.unwrap_or(ITEM), None, value, 0),
    }
    out
}

/// Returns the children of a value: the names of their elements, the keys that are not valid names, and the values.
fn children(value: &Value) -> Vec<(&str, Option<&str>, &Value)> {
    let member = |(name, value)| match name {
        name if is_name(name) => (name, None, value),
        key => (ITEM, Some(key), value),
    };
    match value {
        Value::List(items) => items.iter().map(|item| (ITEM, None, item)).collect(),
        Value::Map(map) => map.iter().map(|(name, value)| member((name.as_str(), value))).collect(),
        _ => Vec::new(),
    }
}

fn element(out: &mut String, name: &str, key: Option<&str>, value: &Value, depth: usize) {
    out.extend(["<", name]);
    if let Some(key) = key {
        let escaped = xml_escape(key).replace('"', "&quot;").replace('\r', "&#13;");
        out.extend([" key=\"", &escaped.replace('\n', "&#10;").replace('\t', "&#09;"), "\""]);
    }
    let (inside, text) = match value {
        Value::List(_) | Value::Map(_) => (children(value), String::new()),
        Value::Null => (Vec::new(), "null".into()),
        scalar => (Vec::new(), xml_escape(&py_str(scalar))),
    };
    if inside.is_empty() && text.is_empty() {
        return out.push_str(" />");
    }
    out.extend([">", &text]);
    for (name, key, child) in &inside {
        out.extend(["\n", &"  ".repeat(depth + 1)]);
        element(out, name, *key, child, depth + 1);
    }
    if !inside.is_empty() {
        out.extend(["\n", &"  ".repeat(depth)]);
    }
    out.extend(["</", name, ">"]);
}

/// Returns whether a text is a name of XML without colons (`NCName`).
fn is_name(text: &str) -> bool {
    let begins = |c: char| {
        matches!(c, 'A'..='Z' | '_' | 'a'..='z' | '\u{c0}'..='\u{d6}' | '\u{d8}'..='\u{f6}' | '\u{f8}'..='\u{2ff}'
            | '\u{370}'..='\u{37d}' | '\u{37f}'..='\u{1fff}' | '\u{200c}' | '\u{200d}' | '\u{2070}'..='\u{218f}'
            | '\u{2c00}'..='\u{2fef}' | '\u{3001}'..='\u{d7ff}' | '\u{f900}'..='\u{fdcf}' | '\u{fdf0}'..='\u{fffd}'
            | '\u{10000}'..='\u{effff}')
    };
    let goes_on = |c: char| {
        begins(c) || matches!(c, '-' | '.' | '0'..='9' | '\u{b7}' | '\u{300}'..='\u{36f}' | '\u{203f}' | '\u{2040}')
    };
    text.starts_with(begins) && text.chars().all(goes_on)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The texts are those of pydantic-ai 2.68.
    #[test]
    fn values_are_written_as_the_reference_writes_them() {
        let xml = |json: serde_json::Value, tag| value_xml(&Value::from(json), tag);
        let nested = json!({"a": 1, "b": [1, 2], "c": {"d": null, "e": true, "f": 1.5}, "g": []});
        let inside = "<a>1</a>\n<b>\n  <item>1</item>\n  <item>2</item>\n</b>\n<c>\n  <d>null</d>\n  <e>True</e>\n  <f>1.5</f>\n</c>\n<g />";
        assert_eq!(xml(nested.clone(), None), inside);
        assert_eq!(xml(nested, Some("t")), format!("<t>\n  {}\n</t>", inside.replace('\n', "\n  ")));
        assert_eq!(
            xml(json!([[1, [2]], []]), None),
            "<item>\n  <item>1</item>\n  <item>\n    <item>2</item>\n  </item>\n</item>\n<item />"
        );
        assert_eq!(xml(json!("hi & <b>"), None), "<item>hi &amp; &lt;b&gt;</item>");
        assert_eq!((xml(json!(""), Some("t")), xml(json!({}), Some("t"))), ("<t />".into(), "<t />".into()));
        assert_eq!((xml(json!([]), None), xml(json!(null), None)), (String::new(), "<item>null</item>".into()));
        assert_eq!(
            xml(json!({"a b": 1, "1x": 2, "": 3, "ü": "é", "q\"\n<": 1e22}), None),
            "<item key=\"a b\">1</item>\n<item key=\"1x\">2</item>\n<item key=\"\">3</item>\n<ü>é</ü>\n<item key=\"q&quot;&#10;&lt;\">1e+22</item>"
        );
        assert_eq!(xml(json!({"a:b": 1, "a.b-c": 2}), None), "<item key=\"a:b\">1</item>\n<a.b-c>2</a.b-c>");
    }
}
