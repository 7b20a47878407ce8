//! The texts that are searched: of an item with an index its text, of any other value the texts in it.
//!
//! A part of a text channel is searched with the word that the parts before it began, so a word across parts is found
//! in the part in which it ends. *Absent:* where values are stored.
//!
//! Invariant: the text of an entry follows from its payload and from parts of its own branch, which are deleted with
//! it.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{self, DeserializeSeed, Deserializer, IgnoredAny, Visitor};

use super::Grams;
use crate::base::limits::{MAP_POSITION_MIN, SHOWN_EXTENSIONS_MAX, TEXT_POSITION_MIN};
use crate::base::{Codec, PayloadRef, Value, decode_bytes, decode_value};
use crate::limits::{SEARCH_TEXT_BYTES_MAX, SEARCHED_BYTES_MAX, TEXT_POSITION_END};
use crate::store::record::ItemIndexRef;

/// A put of an item, or a value of a channel, as a search reads it.
#[derive(Debug)]
pub struct SearchedEntry<'a> {
    /// The text, after the word that the parts before it began.
    pub text: Cow<'a, str>,
    /// The bytes of that word.
    pub begun: usize,
    /// The columns of an item with an index.
    pub index: ItemIndexRef<'a>,
    payload: PayloadRef<'a>,
    position: Option<u64>,
}

impl<'a> SearchedEntry<'a> {
    /// Returns the entry of a payload; `None` if it has no text. It is that of an item at a position, or else of a
    /// value. `begun` reads the word that the parts before a position began.
    pub fn of<E>(
        payload: PayloadRef<'a>,
        position: Option<u64>,
        begun: impl FnOnce() -> Result<String, E>,
    ) -> Result<Option<Self>, E> {
        let Some(mut text) = text_of(&payload) else { return Ok(None) };
        let is_part = position.is_some_and(|position| (TEXT_POSITION_MIN..TEXT_POSITION_END).contains(&position));
        let mut bytes = 0;
        if is_part && text.starts_with(|c: char| !c.is_whitespace()) {
            let word = begun()?;
            if !word.is_empty() {
                bytes = word.len();
                text = Cow::Owned(word + &text);
            }
        }
        let index = payload.index.unwrap_or_default();
        Ok(Some(Self { text, begun: bytes, index, payload, position }))
    }

    /// Returns the grams of the text, for an index: hashes of its parts, each once, ascending, below 2^30.
    pub fn grams(&self) -> Vec<u32> {
        Grams::of_text(&self.text).iter().collect()
    }

    /// Returns the key of an entry of a map.
    pub(crate) fn key(&self) -> Option<String> {
        let is_entry = self.position.is_some_and(|at| (MAP_POSITION_MIN..TEXT_POSITION_MIN).contains(&at));
        let pair = is_entry.then(|| decode_bytes::<(String, IgnoredAny)>(self.payload.codec, self.payload.data).ok());
        pair.flatten().map(|(key, _)| key)
    }

    /// Returns the position that a hit shows: of an item in its list, or of a part in its text.
    pub(crate) fn shown_position(&self) -> u64 {
        match self.position {
            Some(position) if position >= TEXT_POSITION_END => position,
            Some(position) if position >= TEXT_POSITION_MIN => position - TEXT_POSITION_MIN,
            Some(position) if position < MAP_POSITION_MIN => position,
            _ => 0,
        }
    }
}

/// Returns the text of a payload: that of its index, or else the texts in its value, each on a line.
pub(in crate::store) fn text_of<'a>(payload: &PayloadRef<'a>) -> Option<Cow<'a, str>> {
    match payload.index {
        Some(index) => index.text.map(Cow::Borrowed),
        None => {
            let texts = decode_bytes::<ValueTexts>(payload.codec, payload.data).ok()?.0;
            (!texts.is_empty()).then_some(Cow::Owned(texts))
        }
    }
}

/// Reads the word at the end of the parts of a text, from the last part on.
#[derive(Debug)]
pub struct BegunWord {
    /// The parts of the word, the last one first.
    parts: Vec<String>,
    /// The characters that may be read; an empty part costs one as well.
    left: usize,
}

impl BegunWord {
    /// Begins to read. A word of a search has at most as many characters as its text has bytes.
    pub fn at_end() -> Self {
        Self { parts: Vec::new(), left: SEARCH_TEXT_BYTES_MAX }
    }

    /// Adds the part before. Returns whether the word may have begun before it.
    pub fn add(&mut self, payload: &PayloadRef<'_>) -> bool {
        let text = match payload.index {
            Some(index) => index.text.map(Cow::Borrowed),
            // The end of a long part counts, which `text_of` cuts off.
            None => decode_bytes::<String>(payload.codec, payload.data).ok().map(Cow::Owned),
        };
        let Some(text) = text else { return false };
        let word = text.char_indices().rev().take(self.left).take_while(|(_, c)| !c.is_whitespace());
        let from = word.last().map_or(text.len(), |(at, _)| at);
        self.left = self.left.saturating_sub(text[from..].chars().count().max(1));
        self.parts.push(text[from..].to_owned());
        from == 0 && self.left > 0
    }

    /// Returns the word.
    pub fn finish(mut self) -> String {
        self.parts.reverse();
        self.parts.concat()
    }
}

/// The texts in a value, each on a line; names of members are left out. A text that no search would read is cut off.
struct ValueTexts(String);

impl<'de> Deserialize<'de> for ValueTexts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut texts = String::new();
        AddTexts(&mut texts).deserialize(deserializer)?;
        Ok(Self(texts))
    }
}

/// Adds the texts of a value.
struct AddTexts<'t>(&'t mut String);

impl AddTexts<'_> {
    /// Adds the texts of the fields of an object, inside `outside` others. They come after its module and its class.
    fn add_fields(&mut self, payload: &[u8], outside: usize) {
        if outside < SHOWN_EXTENSIONS_MAX
            && let Ok(Value::List(parts)) = decode_value(Codec::MsgPack, payload)
            && let [Value::Str(_), Value::Str(_), fields, ..] = &*parts
        {
            self.add(fields, outside + 1);
        }
    }

    fn add(&mut self, value: &Value, outside: usize) {
        match value {
            Value::Str(text) => self.add_text(text),
            Value::List(items) => items.iter().for_each(|item| self.add(item, outside)),
            Value::Map(members) => members.values().for_each(|member| self.add(member, outside)),
            Value::Ext(_, payload) => self.add_fields(payload, outside),
            _ => {}
        }
    }

    fn add_text(&mut self, text: &str) {
        let room = (SEARCHED_BYTES_MAX + 1).saturating_sub(self.0.len());
        if room > 0 && !text.is_empty() {
            if !self.0.is_empty() {
                self.0.push('\n');
            }
            let end = (room.min(text.len())..=text.len()).find(|end| text.is_char_boundary(*end));
            self.0.push_str(&text[..end.unwrap_or(text.len())]);
        }
    }
}

impl<'de> DeserializeSeed<'de> for AddTexts<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for AddTexts<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_str<E: de::Error>(mut self, text: &str) -> Result<(), E> {
        self.add_text(text);
        Ok(())
    }

    fn visit_bytes<E: de::Error>(self, _: &[u8]) -> Result<(), E> {
        Ok(())
    }

    fn visit_bool<E: de::Error>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E: de::Error>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E: de::Error>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E: de::Error>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E: de::Error>(self) -> Result<(), E> {
        Ok(())
    }

    /// The texts of an extension that names a class are those of its fields; any other has none.
    fn visit_newtype_struct<D: Deserializer<'de>>(mut self, extension: D) -> Result<(), D::Error> {
        if let Value::List(parts) = Value::deserialize(extension)?
            && let Some(Value::Bytes(payload)) = parts.last()
        {
            self.add_fields(payload, 0);
        }
        Ok(())
    }

    fn visit_seq<A: de::SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        while items.next_element_seed(AddTexts(self.0))?.is_some() {}
        Ok(())
    }

    fn visit_map<A: de::MapAccess<'de>>(self, mut members: A) -> Result<(), A::Error> {
        while members.next_key::<IgnoredAny>()?.is_some() {
            members.next_value_seed(AddTexts(self.0))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::{Encoded, Payload};

    fn payload(value: impl Into<Value>) -> Payload {
        Encoded::encode(&value.into()).unwrap().into()
    }

    fn texts(value: serde_json::Value) -> Option<String> {
        text_of(&payload(value).as_ref()).map(Cow::into_owned)
    }

    #[test]
    fn the_texts_of_a_value_are_lines_and_its_names_are_left_out() {
        use serde_json::json;
        assert_eq!(texts(json!("a b")).as_deref(), Some("a b"));
        let nested = json!({"name": "x", "list": ["y", 1, null, "", {"deep": "z"}], "number": 1.5, "is": true});
        let mut lines: Vec<String> = texts(nested).unwrap().lines().map(str::to_owned).collect();
        lines.sort_unstable();
        assert_eq!(lines, ["x", "y", "z"]);
        assert_eq!([texts(json!(null)), texts(json!("")), texts(json!([1, {}]))], [None, None, None]);
        assert_eq!(text_of(&Payload::new(b"not MessagePack".to_vec()).as_ref()), None);
    }

    #[test]
    fn the_texts_of_an_object_are_those_of_its_fields() {
        let object = |fields: Value| {
            let payload = Value::List(vec!["module".into(), "Class".into(), fields, "method".into()]);
            Value::Ext(5, Encoded::encode(&payload).unwrap().bytes)
        };
        let inner = object(serde_json::json!({"page": "Bern"}).into());
        let nested =
            Value::List(vec!["a".into(), object(Value::List(vec![inner, "b".into()])), Value::Ext(1, vec![7])]);
        assert_eq!(text_of(&payload(nested).as_ref()).as_deref(), Some("a\nBern\nb"));
        let deep = (0..100).fold(Value::from("far"), |inner, _| object(inner));
        assert_eq!(text_of(&payload(deep).as_ref()), None);
    }

    #[test]
    fn a_long_value_is_read_as_far_as_a_search_reads() {
        let long = texts(serde_json::json!(["é".repeat(SEARCHED_BYTES_MAX), "end"])).unwrap();
        assert!(long.len() > SEARCHED_BYTES_MAX && long.len() < SEARCHED_BYTES_MAX + 8 && !long.contains("end"));
        let many = texts(serde_json::Value::from(vec!["ab"; SEARCHED_BYTES_MAX])).unwrap();
        assert!(many.len() > SEARCHED_BYTES_MAX && many.len() < SEARCHED_BYTES_MAX + 8);
    }

    #[test]
    fn a_begun_word_is_read_back_to_white_space() {
        let begun = |parts: &[&str]| {
            let mut word = BegunWord::at_end();
            let read = parts.iter().rev().take_while(|part| word.add(&payload(**part).as_ref())).count();
            (word.finish(), read)
        };
        assert_eq!(begun(&["a Gast", "", "ho"]), ("Gastho".into(), 2));
        assert_eq!(begun(&["a Gast", "hof "]), (String::new(), 0));
        assert_eq!(begun(&["日", "本"]), ("日本".into(), 2));
        assert_eq!(begun(&["x".repeat(5_000).as_str()]), ("x".repeat(SEARCH_TEXT_BYTES_MAX), 0));
        assert_eq!(begun(&vec![""; 5_000]).1, SEARCH_TEXT_BYTES_MAX - 1);
        assert_eq!(begun(&[&format!("{}end", "x ".repeat(SEARCHED_BYTES_MAX))]), ("end".into(), 0));
    }

    #[test]
    fn an_entry_has_a_key_or_a_position() {
        let entry = |value: serde_json::Value, position| {
            let payload = payload(value);
            let entry = SearchedEntry::of(payload.as_ref(), position, || Ok::<_, ()>("Gast".into())).unwrap().unwrap();
            (
                entry.text.into_owned(),
                entry.begun,
                SearchedEntry::of(payload.as_ref(), position, || Ok::<_, ()>("Gast".into()))
                    .unwrap()
                    .map(|entry| (entry.key(), entry.shown_position()))
                    .unwrap(),
            )
        };
        use serde_json::json;
        assert_eq!(entry(json!("hof"), Some(TEXT_POSITION_MIN + 3)), ("Gasthof".into(), 4, (None, 3)));
        assert_eq!(entry(json!(" hof"), Some(TEXT_POSITION_MIN)), (" hof".into(), 0, (None, 0)));
        assert_eq!(entry(json!("hof"), Some(7)), ("hof".into(), 0, (None, 7)));
        assert_eq!(entry(json!("hof"), None), ("hof".into(), 0, (None, 0)));
        assert_eq!(entry(json!(["k", "v"]), Some(MAP_POSITION_MIN + 9)), ("k\nv".into(), 0, (Some("k".into()), 0)));
        assert_eq!(entry(json!("hof"), Some(MAP_POSITION_MIN)).2, (None, 0), "it is not a list of a key and a value");
    }
}
