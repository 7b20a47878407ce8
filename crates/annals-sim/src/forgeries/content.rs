//! Hostile content: bytes, numbers and texts that no sane program writes, committed by the API with right checksums.

use annals::base::{Codec, Encoded, ItemIndex, Payload, Timestamp};
use annals::store::batch::{Batch, Change, ChangeValue, Data, ItemChange, ItemOp, NewCheckpoint, Parent};
use annals::store::log::{KvChange, KvNamespace, LogExt};
use annals::store::{Source, Store, StoreError};

use crate::rng::Rng;

/// Returns bytes that are hostile to a decoder of MessagePack.
pub(super) fn bytes(rng: &mut Rng) -> Vec<u8> {
    let depth = [1, 10, 100, 126, 127, 128, 129, 1_000, 100_000][rng.below(9)];
    match rng.below(8) {
        0 => [vec![0x91; depth], vec![0xc0]].concat(),
        1 => [[0x81, 0xa1, b'a'].repeat(depth), vec![0xc0]].concat(),
        // A list, a map, a text, bytes and an extension that are longer than their bytes.
        2 => {
            [[0xdd], [0xdf], [0xdb], [0xc6], [0xc9]][rng.below(5)].into_iter().chain([0xff; 4]).chain([1, 2]).collect()
        }
        // A text that is not UTF-8.
        3 => vec![0xa4, 0xff, 0xfe, 0x80, 0xc0],
        4 => vec![0xc1; 1 + rng.below(20)],
        5 => Vec::new(),
        6 => [vec![0xdc, 0x40, 0x00], vec![0xc0; 0x4000]].concat(),
        _ => (0..rng.below(64)).map(|_| rng.next() as u8).collect(),
    }
}

/// Returns a text that is hostile to a parser of JSON, or to a terminal.
pub(super) fn text(rng: &mut Rng) -> String {
    match rng.below(7) {
        0 => "[".repeat([100, 127, 128, 10_000][rng.below(4)]),
        1 => "{\"a\":".repeat(200) + "1" + &"}".repeat(200),
        2 => "\u{1b}[2J\u{0}\u{202e}".to_owned(),
        3 => "1e999999".to_owned(),
        4 => String::new(),
        5 => "{\"a\":1,\"a\":2}".to_owned(),
        _ => "x".repeat(rng.below(5_000)),
    }
}

/// Returns a number near a border.
pub(super) fn number(rng: &mut Rng) -> i64 {
    const NUMBERS: [i64; 12] =
        [0, -1, 1, 2, 127, 255, 65_536, i64::MAX, i64::MAX - 1, i64::MIN, i64::MIN + 1, u32::MAX as i64];
    NUMBERS[rng.below(NUMBERS.len())]
}

fn payload(rng: &mut Rng) -> Payload {
    let payload = Payload::new(bytes(rng));
    let payload = if rng.chance(10) { payload.with_codec(Codec::Foreign(rng.next() as u8)) } else { payload };
    if !rng.chance(50) {
        return payload;
    }
    let mut index = ItemIndex::default();
    index.id = rng.chance(50).then(|| text(rng).into());
    index.kind = rng.chance(50).then(|| ["human", "ai", "tool", "?"][rng.below(4)].into());
    index.name = rng.chance(30).then(|| text(rng).into());
    index.tool_calls = rng.chance(30).then(|| text(rng));
    index.text = rng.chance(50).then(|| text(rng));
    index.input_tokens = rng.chance(30).then_some(u32::MAX);
    payload.with_index(index)
}

/// Commits hostile content to a thread and to the key-value memory, both of their own.
///
/// # Errors
/// Those of the calls; nothing of the refused one is written.
pub(super) fn commit(store: &Store, rng: &mut Rng) -> Result<(), StoreError> {
    if rng.chance(20) {
        let codec = if rng.chance(80) { Codec::MsgPack } else { Codec::Foreign(7) };
        let value = Encoded { codec, bytes: bytes(rng) };
        let (namespace, key) = (KvNamespace::new(["hostile"])?, text(rng));
        let now = Timestamp::from_micros(number(rng));
        let expires_at = rng.chance(30).then(|| Timestamp::from_micros(number(rng)));
        return store.backend().side_tables()?.commit_kv(&[KvChange::Put { namespace, key, value, now, expires_at }]);
    }
    let thread = store.thread("hostile")?;
    let mut head = None;
    for n in 0..1 + rng.below(3) {
        let id = store.mint_checkpoint(n as i64, head.as_ref());
        let created_at = Timestamp::from_micros(number(rng));
        let mut checkpoint = NewCheckpoint::new(id, head.map(Parent::Local), number(rng), Source::Update, created_at);
        checkpoint.metadata = rng.chance(30).then(|| text(rng));
        let version = if rng.chance(80) { n as u64 + 1 } else { number(rng) as u64 };
        checkpoint.changes.push(Change::new("value", version, ChangeValue::Value(Data::New(payload(rng)))));
        let position = |rng: &mut Rng| if rng.chance(70) { 10 * n as u64 } else { number(rng) as u64 };
        let put = |rng: &mut Rng| ItemOp::Put(Data::New(payload(rng)));
        let mut items = vec![ItemChange::new(position(rng), put(rng), None)];
        if rng.chance(20) {
            items.push(ItemChange::new(position(rng), ItemOp::DeleteRange { end: number(rng) as u64 }, None));
        }
        checkpoint.changes.push(Change::new("messages", n as u64 + 1, ChangeValue::Items(items)));
        let mut batch = Batch::new(thread.id().clone(), thread.namespace().clone(), head);
        batch.checkpoints.push(checkpoint);
        store.commit(&batch)?;
        head = Some(id);
    }
    Ok(())
}
