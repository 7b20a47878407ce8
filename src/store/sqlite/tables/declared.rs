//! The tables of a file: those of the log, those by which its rows are deleted, those beside the log, and those of the
//! file as such. A column with an arrow names the table to whose rows it refers.

use super::sql::tables;

tables! {
    /// Small numbers that stand for names.
    name<'r>: Checked, Number, AppendOnly, Recovered, Used { id: i64, kind: i64, text: &'r str }
    /// Threads.
    thread<'r>: Checked, Number, AppendOnly, Recovered { id: i64, public_id: &'r str, created_at: i64 }
    /// Namespaces of threads.
    namespace<'r>: Checked, Number, AppendOnly, Recovered { id: i64, thread: i64 => thread or tombstone, path: &'r str }
    /// Branches of namespaces.
    branch: Checked, Number, AppendOnly, Recovered {
        id: i64, namespace: i64, parent: Option<i64>, upto: Option<i64>, depth: i64, fork_thread: Option<i64>,
        fork_checkpoint: Option<i64>
    }
    /// Checkpoints. Their check covers columns of other tables as well.
    checkpoint<'r>: Bare, Number, AppendOnly, Recovered {
        seq: i64, namespace: i64, id: [u8; 16], parent: Option<i64> = below(seq), branch: i64, ordinal: i64,
        step: i64 = below(ordinal), source: i64, created_at: i64, run: RunColumn, metadata: ValueRef<'r>,
        parents: Option<&'r [u8]>, tasks: Option<&'r [u8]>, app_version: Option<&'r str>, sum: [u8; 16], xxh3: i64
    }
    /// Versions of channels and nodes. The last row of a checkpoint has the check of all of them.
    version<'r>: Bare, Columns(3), AppendOnly, Recovered {
        branch: i64, ordinal: i64, key: i64, version: i64, kind: i64, task: Option<u32>,
        value: StoredColumn<'r> => payload, xxh3: Option<i64>
    }
    /// Values. Their check covers the fields that the columns encode.
    payload<'r>: Bare, Number, AppendOnly, Recovered, Used {
        id: i64, form: i64, xxh3: i64, data: ValueRef<'r> => blob, item_id: ValueRef<'r>, kind: Option<&'r str>,
        text: ValueRef<'r> => blob, name: Option<&'r str>, tool_calls: Option<&'r str>, input_tokens: Option<u32>,
        output_tokens: Option<u32>
    }
    /// Large contents.
    blob<'r>: Bare, Number, AppendOnly, Recovered, Used { id: i64, hash: &'r [u8], data: ValueRef<'r> }
    /// Items of lists.
    item<'r>: KeyChecked, Descending(4), AppendOnly, Recovered {
        branch: i64, channel: i64, slot: i64, ordinal: i64, op: i64, task: Option<u32>,
        value: StoredColumn<'r> => payload
    }
    /// Writes of tasks. The first row of a run has the checksum or the check of its rows.
    write<'r>: Bare, Columns(4), AppendOnly, Recovered {
        checkpoint: i64 => checkpoint, task: TaskColumn, idx: i64, part: i64, channel: i64,
        value: StoredColumn<'r> => payload, child: Option<i64> = above(checkpoint), path: ValueRef<'r>, sum: ValueRef<'r>,
        mark: Option<i64>
    }
    /// Operations.
    operation<'r>: KeyChecked, Number, AppendOnly, Recovered, Used {
        id: i64, kind: i64, seq: i64, at: i64, actor: Option<&'r str>, target: ValueRef<'r>, changes: i64
    }
    /// Fields that operations changed.
    operation_change<'r>: KeyChecked, Columns(4), AppendOnly, Recovered {
        namespace: i64 => namespace, kind: i64, key: &'r str, operation: i64 => operation, newest: i64,
        before: ValueRef<'r>, after: ValueRef<'r>
    }
    /// Deleted threads whose rows or log are still there.
    tombstone: Bare, Number, Recovered { thread: i64, state: i64 }
    /// The first threads that used a name.
    name_user: Bare, Columns(2) { thread: i64, name: i64 => name }
    /// The mark by which a file and its log know each other.
    wal_mark: Checked, Number { id: i64, store: [u8; 16], generation: i64, mark: [u8; 16], before: [u8; 16], open: i64 }
    /// Keys of an encrypted file.
    store_key<'r>: Bare, Number, Recovered {
        id: i64, cipher: &'r str, caller: &'r str, file: Option<[u8; 16]>, sealed: &'r [u8]
    }
    /// The greatest numbers at the last deletion.
    high_water: Bare, Number {
        id: i64, name: i64, thread: i64, namespace: i64, branch: i64, checkpoint: i64, payload: i64, blob: i64,
        names_erased: i64, operation: i64
    }
    /// Sleeping tasks.
    timer: Bare, Columns(2), Recovered { namespace: i64, task: [u8; 16], checkpoint: i64, wake_at: i64, xxh3: i64 }
    /// Leases of threads.
    lease<'r>: KeyChecked, Number {
        thread: i64 => thread, epoch: i64, owner: [u8; 16], process: &'r str, expires_at: Option<i64>, recoveries: i64
    }
    /// Groups in which leases count.
    lease_group: Bare, Columns(2) { thread: i64 => lease, grp: i64, rated_until: Option<i64> }
    /// The table of threads.
    thread_state<'r>: KeyChecked, Number {
        thread: i64, newest: i64, status: Option<i64>, facets: &'r [u8], counts: ValueRef<'r>
    }
    /// The filters under which threads are listed.
    thread_facet: Bare, Columns(2) { facet: i64, newest: i64, thread: i64 }
    /// Namespaces of the key-value memory.
    kv_namespace<'r>: Bare, Number, Recovered, Used { id: i64, path: &'r str }
    /// Entries of the key-value memory.
    kv<'r>: Bare, Number, Recovered {
        id: i64, namespace: i64 => kv_namespace, key: &'r str, created_at: i64, updated_at: i64,
        expires_at: Option<i64>, xxh3: i64, codec: i64, data: &'r [u8]
    }
    /// Vectors of entries.
    kv_vector<'r>: Bare, Columns(2), Recovered {
        entry: i64 => kv, position: i64, field: &'r str, dims: i64, data: &'r [u8], xxh3: i64
    }
    /// Lifetimes of entries.
    kv_lifetime: Bare, Number, Recovered { entry: i64 => kv, lifetime: i64, xxh3: i64 }
    /// The cache.
    cache<'r>: Bare, Number {
        id: i64, namespace: &'r [u8], key: &'r str, expires_at: Option<i64>, xxh3: i64, codec: i64, data: &'r [u8]
    }
}
