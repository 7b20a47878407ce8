//! Texts inside XML, as Python's `xml.sax.saxutils` writes them.

/// Returns the text with `&`, `<` and `>` escaped.
pub fn xml_escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// Returns the text as an attribute: escaped, and in quotes that it does not contain if there are such.
///
/// # Example
/// ```
/// use annals_messages::internal::xml_quoteattr;
///
/// assert_eq!(xml_quoteattr("a<b"), "\"a&lt;b\"");
/// assert_eq!(xml_quoteattr("say \"hi\""), "'say \"hi\"'");
/// ```
pub fn xml_quoteattr(text: &str) -> String {
    let text = xml_escape(text).replace('\n', "&#10;").replace('\r', "&#13;").replace('\t', "&#9;");
    match (text.contains('"'), text.contains('\'')) {
        (true, true) => format!("\"{}\"", text.replace('"', "&quot;")),
        (true, false) => format!("'{text}'"),
        (false, _) => format!("\"{text}\""),
    }
}
