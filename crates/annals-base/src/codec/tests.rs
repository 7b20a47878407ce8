//! Round trips: a value or a type that is encoded is decoded, and one that would not be is refused.

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde::{Deserialize, Serialize};

use super::*;
use crate::Map;
use crate::limits::{DECODED_NODES_MAX, VALUE_DEPTH_MAX, VALUE_NODES_MAX};

fn sample() -> Value {
    let json = serde_json::json!({"z": 1, "a": [null, true, -3, 1.5, "ü"], "big": u64::MAX, "m": {}});
    let mut value = Value::from(json);
    if let Value::Map(map) = &mut value {
        map.insert("bytes".into(), Value::Bytes(vec![0, 255, 7]));
        map.insert("ext".into(), Value::Ext(5, vec![1, 2]));
    }
    value
}

#[test]
fn values_survive_the_codec_in_order() {
    let value = sample();
    let back: Value = Encoded::encode(&value).unwrap().decode().unwrap();
    assert_eq!(value, back);
    let names: Vec<_> = back.as_map().unwrap().keys().cloned().collect();
    assert_eq!(names, ["z", "a", "big", "m", "bytes", "ext"]);
    assert_eq!(back.to_json()["bytes"], serde_json::json!({"$bytes": "AP8H"}));
}

#[test]
fn a_view_is_written_without_the_serializer_up_to_the_limits() {
    let (value, long) = (nested(VALUE_DEPTH_MAX, Value::from(1)), "x".repeat(VALUE_BYTES_MAX - 4));
    let views = [ValueView::Value(&value), ValueView::Str(&long[1..]), ValueView::Null];
    assert!(views.iter().all(|view| super::writer::written(view, 0).is_some()));
    let (deeper, longer) = (Value::List(vec![value.clone()]), ValueView::Str(&long));
    for (view, error) in [
        (ValueView::Value(&deeper), CodecError::TooDeep { limit: VALUE_DEPTH_MAX }),
        (longer, CodecError::TooLarge { bytes: VALUE_BYTES_MAX + 1 }),
    ] {
        assert_eq!((super::writer::written(&view, 0), view.encode()), (None, Err(error)));
    }
}

#[test]
fn a_length_is_written_as_by_the_serializer_on_both_sides_of_a_marker() {
    for length in [0, 15, 16, 31, 32, 255, 256] {
        let text = "a".repeat(length);
        let list = vec![Value::Null; length];
        let names: Vec<String> = (0..length).map(|at| at.to_string()).collect();
        let object = ValueView::Fields(names.iter().map(|name| (name.as_str(), ValueView::Null)).collect());
        for view in [ValueView::Str(&text), ValueView::Values(&list), object] {
            assert_eq!(super::writer::written(&view, 0), Some(Encoded::encode(&view).unwrap().bytes), "{length}");
        }
    }
}

#[test]
fn hostile_bytes_are_typed_errors() {
    let deep = vec![0x91; 100_000];
    assert!(matches!(decode_bytes::<Value>(Codec::MsgPack, &deep), Err(CodecError::TooDeep { .. })));
    assert!(matches!(decode_bytes::<serde::de::IgnoredAny>(Codec::MsgPack, &deep), Err(CodecError::TooDeep { .. })));
    assert!(decode_bytes::<Value>(Codec::MsgPack, &[0xdd, 0xff, 0xff, 0xff, 0xff]).is_err());
    assert!(decode_bytes::<Value>(Codec::MsgPack, &[0xc0, 0xc0]).is_err(), "two values are not one");
    let mut nils = vec![0xdd, 0x00, 0x40, 0x00, 0x00];
    nils.extend(std::iter::repeat_n(0xc0, 0x40_0000));
    let error = decode_bytes::<Value>(Codec::MsgPack, &nils).unwrap_err().to_string();
    assert!(error.contains("parts"), "{error}");
    assert_eq!(decode_bytes::<Value>(Codec::Foreign(9), &[]), Err(CodecError::ForeignCodec { tag: 9 }));
}

/// Returns a value inside `depth` lists and objects.
fn nested(depth: usize, inner: Value) -> Value {
    (0..depth).fold(inner, |inner, level| match level % 2 {
        0 => Value::List(vec![inner]),
        _ => Value::Map(Map::from([("n".to_owned(), inner)])),
    })
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        ".{0,40}".prop_map(Value::from),
        prop::collection::vec(any::<u8>(), 0..300).prop_map(Value::Bytes),
        (any::<i8>(), prop::collection::vec(any::<u8>(), 0..20)).prop_map(|(kind, bytes)| Value::Ext(kind, bytes)),
    ];
    leaf.prop_recursive(6, 60, 20, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..20).prop_map(Value::List),
            prop::collection::vec((".{0,6}", inner), 0..20).prop_map(|all| Value::Map(all.into_iter().collect())),
        ]
    })
}

/// A type with every shape of serde.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
enum Shape {
    Unit,
    Newtype(Box<Shape>),
    Tuple(i8, Option<u64>, char),
    Struct { name: String, inner: Vec<Shape>, small: f32, by_name: BTreeMap<String, Option<bool>> },
    Nothing(Empty, ()),
    Wide(i128, u128, Wrapped),
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Empty;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Wrapped(Option<Box<Wrapped>>);

fn shape() -> impl Strategy<Value = Shape> {
    let wide = (0..i128::MAX, any::<u128>());
    let leaf = prop_oneof![
        Just(Shape::Unit),
        Just(Shape::Nothing(Empty, ())),
        wide.prop_map(|(i, u)| Shape::Wide(-i, u, Wrapped(None))),
        (any::<i8>(), any::<Option<u64>>(), any::<char>()).prop_map(|(a, b, c)| Shape::Tuple(a, b, c)),
    ];
    leaf.prop_recursive(20, 60, 4, |inner| {
        let by_name = prop::collection::btree_map(".{0,4}", any::<Option<bool>>(), 0..4);
        let list = prop::collection::vec(inner.clone(), 0..4);
        prop_oneof![
            inner.prop_map(|inner| Shape::Newtype(Box::new(inner))),
            (".{0,9}", list, -1.0e9_f32..1.0e9, by_name).prop_map(|(name, inner, small, by_name)| Shape::Struct {
                name,
                inner,
                small,
                by_name
            }),
        ]
    })
}

proptest! {
    #[test]
    fn an_encoded_value_is_decoded(value in value(), depth in 0..VALUE_DEPTH_MAX + 20) {
        let value = nested(depth, value);
        let texts = [None, Some("a text")].into_iter().map(ValueView::from).collect();
        let fields = vec![("value", (&value).into()), ("number", (-1).into()), ("flag", true.into()), ("texts", texts)];
        let view = ValueView::Fields(fields);
        prop_assert_eq!(view.encode(), Encoded::encode(&view));
        prop_assert_eq!(ValueView::from(&value).encode(), Encoded::encode(&value));
        match Encoded::encode(&value) {
            Ok(encoded) => {
                prop_assert_eq!(&encoded.decode::<Value>().unwrap(), &value);
                prop_assert_eq!(&decode_value(encoded.codec, &encoded.bytes).unwrap(), &value);
                prop_assert_eq!(&Value::from_serialize(&value).unwrap(), &value);
                prop_assert_eq!(&value.to::<Value>().unwrap(), &value);
            }
            Err(error) => {
                prop_assert!(depth + 7 > VALUE_DEPTH_MAX, "{}", depth);
                let limit = VALUE_DEPTH_MAX;
                prop_assert_eq!(&error, &CodecError::TooDeep { limit });
                prop_assert_eq!(Value::from_serialize(&value).unwrap_err(), error);
            }
        }
    }

    #[test]
    fn a_type_becomes_the_value_that_its_encoding_is(shape in shape()) {
        let encoded = Encoded::encode(&shape).unwrap();
        let value = Value::from_serialize(&shape).unwrap();
        prop_assert_eq!(&encoded.decode::<Value>().unwrap(), &value);
        prop_assert_eq!(&decode_value(encoded.codec, &encoded.bytes).unwrap(), &value);
        prop_assert_eq!(&encoded.decode::<Shape>().unwrap(), &shape);
        prop_assert_eq!(&rmp_serde::from_slice::<Shape>(&encoded.bytes).unwrap(), &shape);
        prop_assert_eq!(&value.to::<Shape>().unwrap(), &shape);
    }

    #[test]
    fn both_readers_agree_on_any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
        let by_serde = decode_bytes::<Value>(Codec::MsgPack, &bytes);
        prop_assert_eq!(decode_value(Codec::MsgPack, &bytes).ok(), by_serde.ok());
    }
}

#[test]
fn the_limit_of_depth_is_the_same_for_every_way_in() {
    let deepest = nested(VALUE_DEPTH_MAX, Value::Null);
    let encoded = Encoded::encode(&deepest).expect("at the limit");
    assert_eq!(encoded.decode::<Value>().as_ref(), Ok(&deepest));
    assert_eq!(Value::from_serialize(&deepest).as_ref(), Ok(&deepest));
    let error = CodecError::TooDeep { limit: VALUE_DEPTH_MAX };
    for beyond in [nested(VALUE_DEPTH_MAX + 1, Value::Null), nested(VALUE_DEPTH_MAX, Value::Ext(1, vec![1]))] {
        assert_eq!(Encoded::encode(&beyond).unwrap_err(), error);
        assert_eq!(Value::from_serialize(&beyond).unwrap_err(), error);
    }
    assert_eq!(error.to_string(), "the value is nested deeper than 128 levels, which is the limit");
    let endless = nested(2_000, Value::Null);
    assert!(matches!(Encoded::encode(&endless), Err(CodecError::Encode { .. })));
    assert!(matches!(endless.to::<Value>(), Err(CodecError::TooDeep { .. })));
}

#[test]
fn the_limit_of_parts_counts_values_and_not_their_names() {
    let items = |n: usize| Value::List(vec![Value::Null; n]);
    let full = Encoded::encode(&items(VALUE_NODES_MAX - 1)).expect("at the limit");
    assert!(decode_value(full.codec, &full.bytes).is_ok());
    let error = Encoded::encode(&items(VALUE_NODES_MAX)).unwrap_err();
    assert_eq!(error, CodecError::TooManyParts { limit: VALUE_NODES_MAX });
    let mut nils = vec![0xdd, 0x00, 0x40, 0x00, 0x00];
    nils.extend(std::iter::repeat_n(0xc0, 0x40_0000));
    let limit = DECODED_NODES_MAX;
    assert_eq!(decode_value(Codec::MsgPack, &nils), Err(CodecError::TooManyParts { limit }));
    assert_eq!(decode_bytes::<Vec<()>>(Codec::MsgPack, &nils), Err(CodecError::TooManyParts { limit }));
}

#[test]
fn bytes_after_a_value_are_refused() {
    for after in [&[0xc0][..], &[0x82, 0x00], &[0xcf], &[0xc1], &[0xdd, 0xff, 0xff, 0xff, 0xff]] {
        let bytes = [&[0x07], after].concat();
        assert!(decode_bytes::<i64>(Codec::MsgPack, &bytes).is_err(), "{after:x?}");
        assert!(decode_value(Codec::MsgPack, &bytes).is_err(), "{after:x?}");
    }
}

#[test]
fn a_member_whose_name_is_not_a_text_is_refused() {
    let error = Value::from_serialize(&BTreeMap::from([(1, 2)])).unwrap_err();
    assert_eq!(error.to_string(), "the value cannot be encoded: the name of a member is not a text: found int");
}

#[test]
fn a_type_that_reads_a_part_of_a_list_or_more_than_it_has_is_refused() {
    let encoded = Encoded::encode(&(1, 2, 3)).unwrap();
    let error = encoded.decode::<(u8, u8)>().unwrap_err().to_string();
    assert_eq!(error, "the stored value is not a valid (u8, u8): 1 more items than expected");
    assert!(encoded.decode::<(u8, u8, u8, u8)>().is_err());
    assert_eq!(encoded.decode::<(u8, u8, u8)>(), Ok((1, 2, 3)));
}

#[test]
fn bytes_are_read_as_a_list_and_numbers_as_names() {
    let value = Value::Bytes(vec![1, 200]);
    assert_eq!(value.to::<Vec<u8>>(), Ok(vec![1, 200]));
    assert_eq!(Encoded::encode(&value).unwrap().decode::<(u8, u8)>(), Ok((1, 200)));
    let by_number = BTreeMap::from([(1, "a".to_owned()), (-2, "b".to_owned())]);
    assert_eq!(Encoded::encode(&by_number).unwrap().decode(), Ok(by_number));
}

#[test]
fn the_bytes_past_the_limit_of_a_value_are_counted_and_take_no_memory() {
    use std::io::Write as _;
    let mut bytes = super::BoundedBytes { bytes: Vec::new(), length: 0 };
    let part = vec![7; VALUE_BYTES_MAX / 2];
    for parts in 1..=2 {
        bytes.write_all(&part).unwrap();
        assert_eq!((bytes.bytes.len(), bytes.length), (parts * part.len(), parts * part.len()));
    }
    for parts in 3..=9 {
        assert_eq!(bytes.write(&part).unwrap(), part.len());
        assert_eq!((bytes.bytes.capacity(), bytes.length), (0, parts * part.len()));
    }
    let text = "x".repeat(VALUE_BYTES_MAX);
    assert_eq!(Encoded::encode(&text), Err(CodecError::TooLarge { bytes: VALUE_BYTES_MAX + 5 }));
    assert_eq!(Encoded::encode(&text[5..]).unwrap().bytes.len(), VALUE_BYTES_MAX);
}
