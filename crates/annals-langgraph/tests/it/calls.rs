//! Bounds of the calls that a saver makes of its log: on a server each is a round trip.

use std::sync::Arc;

use annals::store::log::{Layer, Log};
use annals::store::{MemoryBackend, OpenOptions, Store};
use annals_langgraph::{Config, LostRace, NewValue, Saver, SaverCheckpoint, Typed};
use parking_lot::Mutex;

/// A layer that notes the calls that reach its log.
#[derive(Debug)]
struct SaverCalls(MemoryBackend, Mutex<Vec<&'static str>>);

impl SaverCalls {
    /// Takes the calls since the last time.
    fn take(&self) -> Vec<&'static str> {
        std::mem::take(&mut self.1.lock())
    }
}

impl Layer for SaverCalls {
    fn below(&self) -> &dyn Log {
        &self.0
    }

    fn before(&self, call: &'static str) {
        self.1.lock().push(call);
    }
}

fn checkpoint(number: u32) -> SaverCheckpoint {
    let mut new = SaverCheckpoint::new(format!("1f000000-0000-6000-8000-{number:012}"), "");
    new.values = vec![("n".into(), NewValue::Typed(Typed::msgpack(vec![number as u8])))];
    new
}

#[test]
fn a_turn_reads_the_head_once_for_each_call() {
    let log = Arc::new(SaverCalls(MemoryBackend::new(), Mutex::default()));
    let open = || Saver::new(Store::with_backend(Arc::clone(&log) as Arc<dyn Log>, OpenOptions::new()));
    let (saver, place) = (open(), Config::new("t", ""));
    let first = saver.put(&place, checkpoint(1), LostRace::Refuse).unwrap();
    assert_eq!(log.take(), ["heads", "commit"], "the first put");
    assert!(saver.tuple(&place).unwrap().is_some());
    assert_eq!(log.take(), ["heads", "read", "writes_of"], "a read");
    saver.reread(&place, first.checkpoint().unwrap()).unwrap();
    assert_eq!(log.take(), ["heads"], "a read of a head that the caller knows");
    let second = saver.put(&first, checkpoint(2), LostRace::Refuse).unwrap();
    assert_eq!(log.take(), ["heads", "commit"], "a put on the head");

    // A checkpoint with an id below the newest one makes an index of side namespaces.
    let aside = saver.put(&second, checkpoint(0), LostRace::Branch).unwrap();
    assert!(saver.tuple(&aside).unwrap().is_some());
    log.take();
    saver.put(&second, checkpoint(3), LostRace::Refuse).unwrap();
    assert_eq!(log.take(), ["heads", "commit"], "a put beside side namespaces");

    let cold = open();
    cold.put(&Config::new("t", "").at(checkpoint(3).id), checkpoint(4), LostRace::Refuse).unwrap();
    let calls = log.take();
    assert_eq!(calls.iter().filter(|call| **call == "heads").count(), 1, "a put of a cold saver: {calls:?}");
}
