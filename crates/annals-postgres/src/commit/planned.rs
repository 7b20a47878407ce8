//! The rows that a plan writes, and the statements that write them.

use annals::base::{CheckpointId, ItemIndex, Payload, TaskId};
use annals::store::lease::LeaseRecord;

use super::known::HeadColumn;
use super::sql as commit_sql;
use crate::client::{Param, PgQuery};
use crate::pack::packed;
use crate::rows::{INDEXED, PgPlace, column_text, pack_change};

/// The row of a thread after a commit.
#[derive(Clone, Debug)]
pub(crate) struct ThreadUpdate {
    pub(crate) number: i64,
    /// The number of changes before; `None` locks the row alone.
    pub(crate) change: Option<i64>,
    pub(crate) seq: i64,
    pub(crate) operation: i64,
    pub(crate) namespaces: i64,
    pub(crate) fields: Option<Vec<u8>>,
    pub(crate) lease: Option<LeaseRecord>,
    pub(crate) activity: Option<(i64, i64)>,
    pub(crate) status: Option<i64>,
    pub(crate) graph: Option<String>,
    pub(crate) priority: Option<i64>,
    pub(crate) archived: bool,
    pub(crate) trashed_until: Option<i64>,
    pub(crate) paused: bool,
}

/// A namespace that is new, or whose head is elsewhere after a commit.
#[derive(Clone, Debug)]
pub(crate) struct NamespacePut {
    pub(crate) thread: i64,
    pub(crate) number: i64,
    pub(crate) path: String,
    pub(crate) head: HeadColumn,
}

#[derive(Clone, Debug)]
pub(crate) struct BranchInsert {
    pub(crate) first: PgPlace,
    pub(crate) namespace: i64,
    pub(crate) parent: Option<PgPlace>,
}

#[derive(Clone, Debug)]
pub(crate) struct CheckpointInsert {
    pub(crate) place: PgPlace,
    pub(crate) namespace: i64,
    pub(crate) id: CheckpointId,
    pub(crate) seq: i64,
    pub(crate) parent: Option<CheckpointId>,
    pub(crate) forked_from: Option<Vec<u8>>,
    pub(crate) step: i64,
    pub(crate) source: i64,
    pub(crate) created_at: i64,
    /// The run, if its id was made of a key, by which it is found.
    pub(crate) run: Option<Vec<u8>>,
    pub(crate) app_version: Option<String>,
    pub(crate) metadata: Option<String>,
    pub(crate) exact: Option<Vec<u8>>,
    pub(crate) parents: Option<Vec<u8>>,
    pub(crate) tasks: Option<Vec<u8>>,
    pub(crate) checksum: [u8; 16],
    pub(crate) seen: Option<Vec<u8>>,
    pub(crate) consumed: Option<Vec<u8>>,
    pub(crate) consumed_items: Vec<i64>,
    pub(crate) snapshot: Option<Vec<u8>>,
    /// Channel, version, kind and content of each change.
    pub(crate) changes: Vec<(String, i64, i16, Vec<u8>)>,
}

#[derive(Clone, Debug)]
pub(crate) struct ItemInsert {
    pub(crate) place: PgPlace,
    pub(crate) channel: String,
    pub(crate) position: i64,
    pub(crate) task: Option<u32>,
    /// `None` for a deletion.
    pub(crate) payload: Option<Payload>,
}

#[derive(Clone, Debug)]
pub(crate) struct RangeDeleteInsert {
    pub(crate) place: PgPlace,
    pub(crate) channel: String,
    pub(crate) first: i64,
    pub(crate) last: i64,
    pub(crate) task: Option<u32>,
    pub(crate) reference: Option<Vec<u8>>,
}

#[derive(Clone, Debug)]
pub(crate) struct TaskWritePut {
    pub(crate) place: PgPlace,
    pub(crate) task: TaskId,
    pub(crate) index: i32,
    /// The `seq` of the newest checkpoint of the thread.
    pub(crate) after: i64,
    pub(crate) channel: String,
    pub(crate) mark: Option<i64>,
    pub(crate) value: Vec<u8>,
}

/// A timer of a task of a namespace: its checkpoint and timestamp; `None` removes it.
#[derive(Clone, Debug)]
pub(crate) struct TimerPut {
    pub(crate) thread: i64,
    pub(crate) namespace: i64,
    pub(crate) task: TaskId,
    pub(crate) at: Option<(CheckpointId, i64)>,
}

#[derive(Clone, Debug)]
pub(crate) struct OperationInsert {
    pub(crate) thread: i64,
    pub(crate) number: i64,
    pub(crate) seq: i64,
    pub(crate) content: Vec<u8>,
    /// The thread, the field and the content of each change.
    pub(crate) changes: Vec<(i64, Vec<u8>, Vec<u8>)>,
}

/// The change of the groups of the lease of a thread: left, and entered with the ends of their rates.
#[derive(Clone, Debug)]
pub(crate) struct GroupsChange {
    pub(crate) thread: i64,
    pub(crate) entered: Vec<(String, Option<i64>)>,
}

/// The rows of the plans of a group of batches.
#[derive(Clone, Debug, Default)]
pub(crate) struct PlannedRows {
    /// Number, id, and timestamp of the first checkpoint.
    pub(crate) new_threads: Vec<(i64, String, i64)>,
    /// The threads of each batch, by its number in the group.
    pub(crate) threads: Vec<(i64, ThreadUpdate)>,
    pub(crate) namespaces: Vec<NamespacePut>,
    pub(crate) branches: Vec<BranchInsert>,
    pub(crate) checkpoints: Vec<CheckpointInsert>,
    pub(crate) items: Vec<ItemInsert>,
    pub(crate) range_deletes: Vec<RangeDeleteInsert>,
    pub(crate) task_writes: Vec<TaskWritePut>,
    /// The checkpoints whose timers go: thread, namespace and checkpoint.
    pub(crate) passed: Vec<(i64, i64, CheckpointId)>,
    pub(crate) timers: Vec<TimerPut>,
    pub(crate) operations: Vec<OperationInsert>,
    pub(crate) groups: Vec<GroupsChange>,
}

fn ints<R>(rows: &[R], of: impl Fn(&R) -> Option<i64>) -> Param {
    Param::Ints(rows.iter().map(of).collect())
}

fn int<R>(rows: &[R], of: impl Fn(&R) -> i64) -> Param {
    ints(rows, |row| Some(of(row)))
}

fn texts<R>(rows: &[R], of: impl Fn(&R) -> Option<String>) -> Param {
    Param::Texts(rows.iter().map(of).collect())
}

fn blobs<R>(rows: &[R], of: impl Fn(&R) -> Option<Vec<u8>>) -> Param {
    Param::Blobs(rows.iter().map(of).collect())
}

/// Returns the column of bytes that the rows give away.
fn given<R>(rows: &mut [R], of: impl Fn(&mut R) -> Option<Vec<u8>>) -> Param {
    Param::Blobs(rows.iter_mut().map(of).collect())
}

fn given_texts<R>(rows: &mut [R], of: impl Fn(&mut R) -> Option<String>) -> Param {
    Param::Texts(rows.iter_mut().map(of).collect())
}

fn id_of(id: &CheckpointId) -> Option<Vec<u8>> {
    Some(id.as_bytes().to_vec())
}

impl PlannedRows {
    /// Adds the rows of another plan.
    pub(crate) fn append(&mut self, mut other: Self) {
        self.new_threads.append(&mut other.new_threads);
        self.threads.append(&mut other.threads);
        self.namespaces.append(&mut other.namespaces);
        self.branches.append(&mut other.branches);
        self.checkpoints.append(&mut other.checkpoints);
        self.items.append(&mut other.items);
        self.range_deletes.append(&mut other.range_deletes);
        self.task_writes.append(&mut other.task_writes);
        self.passed.append(&mut other.passed);
        self.timers.append(&mut other.timers);
        self.operations.append(&mut other.operations);
        self.groups.append(&mut other.groups);
    }

    /// Returns the statements of the transaction, and which of them returns the threads that were changed.
    pub(crate) fn queries(mut self, token: i64) -> (Vec<PgQuery>, usize) {
        self.new_threads.sort_by(|a, b| a.1.cmp(&b.1));
        let (mut queries, new) = (Vec::new(), &std::mem::take(&mut self.new_threads));
        if !new.is_empty() {
            let params = [int(new, |row| row.0), texts(new, |row| Some(row.1.clone())), int(new, |row| row.2)];
            queries.push(PgQuery::new(commit_sql::INSERT_THREADS, params));
        }
        let changed = queries.len();
        queries.push(PgQuery::new(commit_sql::CHANGE_THREADS, self.thread_params(token)));
        let mut add = |is_empty: bool, sql: &'static str, params: &mut dyn FnMut() -> Vec<Param>| {
            if !is_empty {
                let mut all = vec![Param::Int(Some(token))];
                all.extend(params());
                queries.push(PgQuery::new(sql, all));
            }
        };
        add(self.namespaces.is_empty(), commit_sql::PUT_NAMESPACES, &mut || self.namespace_params());
        add(self.branches.is_empty(), commit_sql::INSERT_BRANCHES, &mut || self.branch_params());
        add(self.checkpoints.is_empty(), commit_sql::INSERT_CHECKPOINTS, &mut || self.checkpoint_params());
        add(self.items.is_empty(), commit_sql::INSERT_ITEMS, &mut || self.item_params());
        add(self.range_deletes.is_empty(), commit_sql::INSERT_RANGE_DELETES, &mut || self.range_delete_params());
        add(self.task_writes.is_empty(), commit_sql::PUT_TASK_WRITES, &mut || self.task_write_params());
        add(self.passed.is_empty(), commit_sql::DELETE_TIMERS_AT, &mut || {
            let rows = &self.passed;
            vec![int(rows, |row| row.0), int(rows, |row| row.1), blobs(rows, |row| id_of(&row.2))]
        });
        let (set, removed): (Vec<&TimerPut>, Vec<&TimerPut>) = self.timers.iter().partition(|timer| timer.at.is_some());
        let key = |rows: &[&TimerPut]| {
            let task = blobs(rows, |row| Some(row.task.as_bytes().to_vec()));
            vec![int(rows, |row| row.thread), int(rows, |row| row.namespace), task]
        };
        add(removed.is_empty(), commit_sql::DELETE_TIMERS_OF, &mut || key(&removed));
        add(set.is_empty(), commit_sql::PUT_TIMERS, &mut || {
            let mut params = key(&set);
            params.push(blobs(&set, |row| row.at.and_then(|(id, _)| id_of(&id))));
            params.push(ints(&set, |row| row.at.map(|(_, at)| at)));
            params
        });
        add(self.operations.is_empty(), commit_sql::INSERT_OPERATIONS, &mut || {
            let rows = &self.operations;
            let content = blobs(rows, |row| Some(row.content.clone()));
            vec![int(rows, |row| row.thread), int(rows, |row| row.number), int(rows, |row| row.seq), content]
        });
        add(self.operations.is_empty(), commit_sql::INSERT_OPERATION_CHANGES, &mut || {
            let rows: Vec<_> = self
                .operations
                .iter()
                .flat_map(|of| of.changes.iter().map(move |change| (of.number, change)))
                .collect();
            let part = |part: fn(&(i64, Vec<u8>, Vec<u8>)) -> &Vec<u8>| blobs(&rows, |row| Some(part(row.1).clone()));
            vec![int(&rows, |row| row.1.0), int(&rows, |row| row.0), part(|row| &row.1), part(|row| &row.2)]
        });
        let mut threads = || vec![int(&self.groups, |row| row.thread)];
        add(self.groups.is_empty(), commit_sql::LEAVE_GROUPS, &mut threads);
        add(self.groups.is_empty(), commit_sql::DROP_GROUPS, &mut threads);
        let entered: Vec<_> =
            self.groups.iter().flat_map(|of| of.entered.iter().map(move |group| (of.thread, group))).collect();
        add(entered.is_empty(), commit_sql::ENTER_GROUPS, &mut || {
            let names = blobs(&entered, |row| Some(row.1.0.as_bytes().to_vec()));
            vec![int(&entered, |row| row.0), names, ints(&entered, |row| row.1.1)]
        });
        if !new.is_empty() {
            queries.push(PgQuery::new(commit_sql::DROP_THREADS, [int(new, |row| row.0)]));
        }
        (queries, changed)
    }

    fn thread_params(&self, token: i64) -> Vec<Param> {
        let rows = &self.threads;
        let lease = |of: fn(&LeaseRecord) -> Option<i64>| ints(rows, move |row| row.1.lease.as_ref().and_then(of));
        vec![
            Param::Int(Some(token)),
            int(rows, |row| row.0),
            int(rows, |row| row.1.number),
            ints(rows, |row| row.1.change),
            int(rows, |row| row.1.seq),
            int(rows, |row| row.1.operation),
            int(rows, |row| row.1.namespaces),
            blobs(rows, |row| row.1.fields.clone()),
            blobs(rows, |row| row.1.lease.as_ref().map(|lease| lease.owner.id().to_vec())),
            texts(rows, |row| row.1.lease.as_ref().map(|lease| lease.owner.process_text())),
            lease(|lease| Some(lease.epoch.cast_signed())),
            lease(|lease| lease.expires_at.map(|at| at.as_micros())),
            lease(|lease| Some(lease.recoveries.cast_signed())),
            ints(rows, |row| row.1.activity.map(|activity| activity.0)),
            ints(rows, |row| row.1.activity.map(|activity| activity.1)),
            ints(rows, |row| row.1.status),
            texts(rows, |row| row.1.graph.clone()),
            ints(rows, |row| row.1.priority),
            Param::Bools(rows.iter().map(|row| Some(row.1.archived)).collect()),
            ints(rows, |row| row.1.trashed_until),
            Param::Bools(rows.iter().map(|row| Some(row.1.paused)).collect()),
        ]
    }

    fn namespace_params(&self) -> Vec<Param> {
        let rows = &self.namespaces;
        vec![
            int(rows, |row| row.thread),
            int(rows, |row| row.number),
            texts(rows, |row| Some(row.path.clone())),
            blobs(rows, |row| row.head.map(|id| id.to_vec())),
        ]
    }

    fn branch_params(&self) -> Vec<Param> {
        let rows = &self.branches;
        vec![
            int(rows, |row| row.first.thread),
            int(rows, |row| row.first.branch),
            int(rows, |row| row.namespace),
            int(rows, |row| row.first.ordinal),
            ints(rows, |row| row.parent.map(|parent| parent.thread)),
            ints(rows, |row| row.parent.map(|parent| parent.branch)),
        ]
    }

    fn checkpoint_params(&mut self) -> Vec<Param> {
        let rows = &mut self.checkpoints;
        let slices = |lens: Vec<usize>| {
            let mut end = 0;
            let ranges = lens.into_iter().map(|len| {
                end += len as i64;
                (Some(end - len as i64 + 1), Some(end))
            });
            let (firsts, lasts): (Vec<_>, Vec<_>) = ranges.unzip();
            [Param::Ints(firsts), Param::Ints(lasts)]
        };
        let lens = slices(rows.iter().map(|row| row.changes.len()).collect());
        let mut changes: Vec<_> = rows.iter_mut().flat_map(|row| std::mem::take(&mut row.changes)).collect();
        let items: Vec<i64> = rows.iter().flat_map(|row| row.consumed_items.iter().copied()).collect();
        let mut params = vec![
            int(rows, |row| row.place.thread),
            int(rows, |row| row.place.branch),
            int(rows, |row| row.place.ordinal),
            int(rows, |row| row.namespace),
            blobs(rows, |row| id_of(&row.id)),
            int(rows, |row| row.seq),
            blobs(rows, |row| row.parent.as_ref().and_then(id_of)),
            given(rows, |row| row.forked_from.take()),
            int(rows, |row| row.step),
            int(rows, |row| row.source),
            int(rows, |row| row.created_at),
            given(rows, |row| row.run.take()),
            given_texts(rows, |row| row.app_version.take()),
            given_texts(rows, |row| row.metadata.take()),
            given(rows, |row| row.exact.take()),
            given(rows, |row| row.parents.take()),
            given(rows, |row| row.tasks.take()),
            blobs(rows, |row| Some(row.checksum.to_vec())),
            given(rows, |row| row.seen.take()),
            given(rows, |row| row.consumed.take()),
            given(rows, |row| row.snapshot.take()),
        ];
        params.extend(slices(rows.iter().map(|row| row.consumed_items.len()).collect()));
        params.extend(lens);
        params.push(int(&items, |item| *item));
        params.push(given_texts(&mut changes, |change| Some(std::mem::take(&mut change.0))));
        params.push(blobs(&changes, |change| Some(pack_change(change.1, change.2, &change.3))));
        params
    }

    fn item_params(&mut self) -> Vec<Param> {
        let rows = &mut self.items;
        let column = |text: Option<&str>| text.map(column_text);
        let of_columns = |text: String| if text.contains('\0') { column_text(&text) } else { text };
        let exact = |index: &&ItemIndex| has_nul(index);
        vec![
            int(rows, |row| row.place.thread),
            int(rows, |row| row.place.branch),
            given_texts(rows, |row| Some(std::mem::take(&mut row.channel))),
            int(rows, |row| row.position),
            int(rows, |row| row.place.ordinal),
            ints(rows, |row| row.task.map(i64::from)),
            ints(rows, |row| {
                let payload = row.payload.as_ref()?;
                let indexed = if payload.index.is_some() { INDEXED } else { 0 };
                Some(i64::from(payload.codec.to_tag()) + i64::from(indexed))
            }),
            given(rows, |row| row.payload.as_mut().map(|payload| std::mem::take(&mut payload.data))),
            texts(rows, |row| column(index_of(row)?.id.as_deref())),
            texts(rows, |row| column(index_of(row)?.kind.as_deref())),
            texts(rows, |row| column(index_of(row)?.name.as_deref())),
            texts(rows, |row| column(index_of(row)?.tool_calls.as_deref())),
            ints(rows, |row| index_of(row)?.input_tokens.map(i64::from)),
            ints(rows, |row| index_of(row)?.output_tokens.map(i64::from)),
            blobs(rows, |row| index_of(row).filter(exact).map(|index| packed(|to| to.index(index)))),
            // Given away at last: the columns before are made of it.
            given_texts(rows, |row| row.payload.as_mut()?.index.as_mut()?.text.take().map(of_columns)),
        ]
    }

    fn range_delete_params(&self) -> Vec<Param> {
        let rows = &self.range_deletes;
        vec![
            int(rows, |row| row.place.thread),
            int(rows, |row| row.place.branch),
            texts(rows, |row| Some(row.channel.clone())),
            int(rows, |row| row.place.ordinal),
            int(rows, |row| row.first),
            int(rows, |row| row.last),
            ints(rows, |row| row.task.map(i64::from)),
            blobs(rows, |row| row.reference.clone()),
        ]
    }

    fn task_write_params(&self) -> Vec<Param> {
        let rows = &self.task_writes;
        vec![
            int(rows, |row| row.place.thread),
            int(rows, |row| row.place.branch),
            int(rows, |row| row.place.ordinal),
            blobs(rows, |row| Some(row.task.as_bytes().to_vec())),
            int(rows, |row| row.index.into()),
            int(rows, |row| row.after),
            texts(rows, |row| Some(row.channel.clone())),
            ints(rows, |row| row.mark),
            blobs(rows, |row| Some(row.value.clone())),
        ]
    }
}

fn index_of(row: &ItemInsert) -> Option<&ItemIndex> {
    row.payload.as_ref()?.index.as_deref()
}

fn has_nul(index: &ItemIndex) -> bool {
    let texts = [index.id.as_deref(), index.kind.as_deref(), index.name.as_deref(), index.tool_calls.as_deref()];
    texts.into_iter().chain([index.text.as_deref()]).flatten().any(|text| text.contains('\0'))
}
