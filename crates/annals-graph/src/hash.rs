//! Hashes of which ids, keys and fingerprints are made: XXH3 for task and interrupt ids, as LangGraph computes them,
//! BLAKE3 for keys, which should withstand intent.
//!
//! Invariant: a hash keeps its value from one version to the next, because files hold it. *Absent:* the bytes that are
//! hashed, which the caller of each function decides.

/// Returns the XXH3-128 hash of `bytes`, most significant byte first.
pub(crate) fn xxh3_128(bytes: &[u8]) -> [u8; 16] {
    xxhash_rust::xxh3::xxh3_128(bytes).to_be_bytes()
}

/// Returns the checksum of `bytes`: the first 16 bytes of their BLAKE3 hash.
pub(crate) fn checksum(bytes: &[u8]) -> [u8; 16] {
    let mut half = [0; 16];
    half.copy_from_slice(&blake3::hash(bytes).as_bytes()[..16]);
    half
}

/// Returns the hexadecimal digits of a hash.
pub(crate) fn digits(hash: [u8; 16]) -> String {
    let digits = format!("{:032x}", u128::from_be_bytes(hash));
    debug_assert_eq!(digits.len(), 32, "a hash has 128 bits");
    digits
}

/// Computes the checksum of a record field by field. A field of bytes is preceded by its length, so that different
/// records have different inputs.
///
/// The fields are collected and hashed at once, because a hash of many short inputs costs several times as much as one
/// of the whole.
#[derive(Default)]
pub(crate) struct FieldHasher(Vec<u8>);

impl FieldHasher {
    /// Adds a field of bytes.
    pub(crate) fn bytes(&mut self, field: &[u8]) -> &mut Self {
        self.0.extend_from_slice(&(field.len() as u64).to_le_bytes());
        self.0.extend_from_slice(field);
        self
    }

    /// Adds an optional field of bytes; absent and empty differ.
    pub(crate) fn maybe(&mut self, field: Option<&[u8]>) -> &mut Self {
        match field {
            Some(field) => self.int(1).bytes(field),
            None => self.int(0),
        }
    }

    /// Adds an integer field.
    pub(crate) fn int(&mut self, field: i64) -> &mut Self {
        self.0.extend_from_slice(&field.to_le_bytes());
        self
    }

    /// Returns the checksum of all fields so far.
    pub(crate) fn finish(&self) -> [u8; 16] {
        checksum(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::Arc;

    use parking_lot::Mutex;

    use crate::base::{Timestamp, Value};
    use crate::prelude::*;
    use crate::task::Task;

    use super::*;

    #[derive(State, Clone, Default)]
    struct Order {
        #[channel(last)]
        cents: i64,
        #[channel(messages)]
        messages: Messages,
    }

    /// The ids of a run, with a word for each.
    #[derive(Clone, Default)]
    struct Noted(Arc<Mutex<Vec<(String, String)>>>);

    impl Noted {
        fn add(&self, of: &str, id: impl ToString) {
            self.0.lock().push((of.to_owned(), id.to_string()));
        }
    }

    /// START -> pay, which calls a task, writes a transaction and interrupts; its error is handled, and a send follows.
    fn order(noted: &Noted) -> CompiledGraph<Order> {
        let (of_call, of_pay, of_handler, of_ship) = (noted.clone(), noted.clone(), noted.clone(), noted.clone());
        let double = Task::new("double", move |cents: i64, ctx: &Context| {
            of_call.add("call", ctx.task());
            of_call.add("step key of the call", ctx.step_key());
            Ok(2 * cents)
        });
        let pay = move |order: &Order, ctx: &Context| -> NodeResult<()> {
            of_pay.add("task", ctx.task());
            of_pay.add("step key", ctx.step_key());
            let mut message = ctx.message_stream();
            message.push("paid");
            of_pay.add("message", message.finish().id.unwrap_or_default());
            double.call(ctx, order.cents)?;
            ctx.transaction(|tx| tx.execute_batch("CREATE TABLE IF NOT EXISTS app_ledger (cents INTEGER)"))?;
            ctx.interrupt("pay?")?;
            Err("refused".into())
        };
        let refused = move |_: &Order, ctx: &Context| {
            of_handler.add("handler", ctx.task());
            Ok(Command::goto(SendTo::new("ship", Value::from(serde_json::json!({"cents": 7})))))
        };
        let ship = move |_: &Order, ctx: &Context| {
            of_ship.add("send", ctx.task());
            Ok(())
        };
        StateGraph::<Order>::new()
            .node_with("pay", pay, NodeOptions::new().error_handler(refused))
            .node("ship", ship)
            .edge(START, "pay")
            .compile()
            .unwrap()
    }

    /// The ids of the run of [`order`] under a fixed clock and seed: files hold them, and a later version must find
    /// them.
    const ID_VALUES: &[(&str, &str)] = &[
        ("fingerprint", "31b9c796dab3843"),
        ("shape", "a407c6c4d9adaba1ea462a90eb07a0d4"),
        ("task", "9429b9f4-824a-4fe4-7a23-ed686f4b5c29"),
        ("step key", "6ab7d871f2e6eeea248a3a688651bff0"),
        ("message", "56d52d24-466d-42bc-9d39-bd857ce79007"),
        ("call", "31a43bef-5cb9-debe-5aa6-e2eb6d486b54"),
        ("step key of the call", "ae3a86d32ed46aa534fee24ec7cfad55"),
        ("interrupt", "724b0bd8286fd3e1f9411811a05b63b5"),
        ("content of the interrupt", "c52df4a0e7b024ac3c85329274db80ec"),
        ("writes", "~__pregel_pull, pay 9429b9f4-824a-4fe4-7a23-ed686f4b5c29"),
        ("writes", "~__pregel_push, ~__pregel_pull, pay, 0000000000, 0000000002 024639c9-f559-a58c-b4d4-0e8a3d72cf55"),
        ("writes", "~c, l, pay, 0000000000, double 31a43bef-5cb9-debe-5aa6-e2eb6d486b54"),
        ("task", "9429b9f4-824a-4fe4-7a23-ed686f4b5c29"),
        ("step key", "6ab7d871f2e6eeea248a3a688651bff0"),
        ("message", "56d52d24-466d-42bc-9d39-bd857ce79007"),
        ("handler", "2bc6fa8a-3a31-1530-3441-e06bd5864efe"),
        ("send", "052d0f31-1a3f-e23c-65e6-37c434a28c8c"),
    ];

    #[test]
    fn derived_ids_keep_their_values() {
        let folder = tempfile::tempdir().unwrap();
        let options = OpenOptions::new().clock(Timestamp::from_micros(1_795_223_817_000_000)).id_seed(7);
        let thread = Store::open_with(folder.path().join("order.db"), options).unwrap().thread("order-17").unwrap();
        let noted = Noted::default();
        let graph = order(&noted);
        noted.add("fingerprint", &graph.graph.fingerprint);
        noted.add("shape", digits(graph.graph.shape));

        let outcome = graph.invoke(&thread, Order::update().cents(5)).unwrap();
        let interrupt = &outcome.interrupts()[0];
        noted.add("interrupt", &interrupt.id);
        noted.add("content of the interrupt", interrupt.hash());
        let writes = thread.head().unwrap().unwrap().writes().unwrap();
        let tasks: BTreeSet<String> = writes.iter().map(|write| format!("{} {}", write.path, write.task)).collect();
        tasks.iter().for_each(|task| noted.add("writes", task));
        graph.invoke(&thread, Command::resume("no")).unwrap();

        let (of, ids): (Vec<String>, Vec<String>) = noted.0.lock().drain(..).unzip();
        let found: Vec<(&str, &str)> = of.iter().map(String::as_str).zip(ids.iter().map(String::as_str)).collect();
        let resumed = &found[found.len() - 5..];
        assert_eq!(resumed[..3], found[2..5], "a task that runs again has its ids");
        assert_eq!(found, ID_VALUES);
    }

    #[test]
    fn hashes_keep_their_values() {
        let long = vec![7; 3 << 14];
        let mut fields = FieldHasher::default();
        fields.int(-1).bytes(b"annals").maybe(Some(b"")).maybe(None).bytes(&long);
        let mut all = (-1_i64).to_le_bytes().to_vec();
        for part in
            [&6_u64.to_le_bytes()[..], b"annals", &1_u64.to_le_bytes(), &[0; 16], &(3_u64 << 14).to_le_bytes(), &long]
        {
            all.extend_from_slice(part);
        }
        assert_eq!(fields.finish(), checksum(&all));
        assert_eq!(digits(checksum(b"")), "af1349b9f5f9a1a6a0404dea36dcc949");
        assert_eq!(digits(xxh3_128(b"")), "99aa06d3014798d86001c324468d497f");
    }
}
