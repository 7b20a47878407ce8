//! Values come back byte for byte, whatever their size and wherever they stand.

use super::build::*;

/// Returns bytes that do not compress, and that differ from seed to seed.
fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut random = IdSource::from_seed(seed);
    std::iter::repeat_with(|| random.random().to_le_bytes()).flatten().take(len).collect()
}

/// Stores each payload as a value, as an item and as writes, and as an item that takes one over.
fn round_trip(backend: &dyn Log, thread: &str, payloads: &[Payload]) {
    let place = root_of(backend, thread);
    // Only items and writes have an index.
    let plain = |payload: &Payload| Payload::new(payload.data.clone()).with_codec(payload.codec);
    let value = |draft: CheckpointDraft, (n, of)| draft.payload(&format!("v{n:03}"), 1, plain(of));
    let draft = payloads.iter().enumerate().fold(begin(1).tasks(&["node"]), value);
    let positions = (0..).zip(payloads).map(|(position, payload)| put_payload(position, payload.clone()));
    place.add(draft.items("list", 1, positions.collect()));
    let one = |(index, payload): (i32, &Payload)| NewWrite::new(index, "list", WriteValue::One(payload.clone()));
    let (mut new, last): (Vec<_>, _) = ((0..).zip(payloads).map(one).collect(), payloads.len() as i32);
    new.push(NewWrite::new(last, "list", WriteValue::Items(payloads.to_vec())));
    place.write(1, 1, new);
    let taken = (0..).zip(payloads).map(|(part, _)| put_of(u64::from(part), task(1), last, part));
    place.add(on(2, 1).items("list", 2, taken.collect()));
}

pub(super) fn sizes(backend: &dyn Log) {
    let lens = [0, 1, 2, 23, INLINE_BYTES_MAX, INLINE_BYTES_MAX + 1, 100, BLOB_BYTES_MIN - 1, BLOB_BYTES_MIN];
    let lens = lens.into_iter().chain([BLOB_BYTES_MIN + 1, 10 << 10, 1 << 20]);
    let mut payloads: Vec<_> = (1..).zip(lens).map(|(seed, len)| bytes(noise(seed, len))).collect();
    payloads.push(bytes("naïve – 你好 – 🐝 – e\u{301} – \0 – end"));
    payloads.push(bytes([0xff, 0xfe, 0, 0x80]));
    round_trip(backend, "sizes, 大小", &payloads);
    // Foreign bytes are stored verbatim; the same bytes under another codec are another value.
    let foreign = |payload: Payload, tag| payload.with_codec(Codec::Foreign(tag));
    let payloads = [
        foreign(bytes(""), 1),
        foreign(bytes([0xc1, 0xc1]), 2),
        foreign(bytes(noise(1, 3_000)), 255),
        foreign(message("m", "text of a foreign message"), 7),
        foreign(bytes(noise(1, 3_000)), 8),
        bytes(noise(1, 3_000)),
    ];
    round_trip(backend, "foreign", &payloads);
}

pub(super) fn item_fields(backend: &dyn Log) {
    let fills: [fn(&mut ItemIndex); 9] = [
        |_| (),
        |index| index.id = Some("only id".into()),
        |index| index.kind = Some("tool".into()),
        |index| index.name = Some("only name".into()),
        |index| index.tool_calls = Some("[]".into()),
        |index| index.text = Some("only text".into()),
        |index| (index.id, index.text) = (Some("".into()), Some(String::new())),
        |index| index.input_tokens = Some(1),
        |index| index.output_tokens = Some(0),
    ];
    let mut payloads: Vec<Payload> = Vec::from(fills.map(|fill| {
        let mut index = ItemIndex::default();
        fill(&mut index);
        bytes("rest").with_index(index)
    }));
    let mut without_rest = message("id-1", "what was said");
    without_rest.data.clear();
    payloads.extend([message("id-1", "what was said"), without_rest, bytes("no index")]);
    payloads.push(message("long", &"long text, ünïcödé 🐝. ".repeat(5_000)));
    round_trip(backend, "fields", &payloads);
}

/// Sizes at a limit are accepted, and sizes past it are refused before anything is written.
pub(super) fn at_the_limit(backend: &dyn Log) {
    let place = root_of(backend, "limits");
    place.add(begin(1).tasks(&["node"]));
    let (name, top) = ("x".repeat(NAME_BYTES_MAX), i64::MAX.unsigned_abs());
    let item = message(&"i".repeat(ITEM_ID_BYTES_MAX), "");
    let mut draft = on(2, 1).value(&name, top, "").items("list", 1, vec![put_payload(top - 1, item)]);
    draft = draft.seen(&name, &[(&name, top)]).metadata(format!("\"{}\"", "m".repeat(METADATA_BYTES_MAX - 2)));
    draft.0.step = STEP_MAX;
    place.add(draft);
    let long = on(3, 2).items("list", 2, vec![put_payload(0, message(&"i".repeat(ITEM_ID_BYTES_MAX + 1), ""))]);
    let unnamed = place.pending(2, writes(2, 1, vec![write(0, "", "")]));
    refuses(backend, [(place.batch(Some(2), [long]), "item id bytes"), (unnamed, "write.channel")]);
    assert_eq!(place.channel(2, &name).map(|channel| channel.version), Some(top));
    let found = place.items(2, "list", ItemRange::All);
    assert_eq!((found.len(), found[0].0), (1, top - 1));
    let record = place.record(2);
    assert_eq!((record.step, record.metadata.map(|text| text.len())), (STEP_MAX, Some(METADATA_BYTES_MAX)));
    let last = 2 + BATCH_CHECKPOINTS_MAX as u64;
    place.add_chain(3..=last);
    assert_eq!(place.record(last).ordinal, last - 1);
}
