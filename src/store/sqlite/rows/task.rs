//! The columns of a row of `write` that name its task and its path.
//!
//! A task that its checkpoint prepared is a position there, and its path follows from it. Any other task is its id, and
//! its path is a name in which [`PLACEHOLDER`] stands for a number, so that the same calls of all runs share names.
//! *Absent:* the names, which are given.

use crate::base::{NULL_TASK, TaskId};
use crate::store::record::TaskRecord;
use crate::store::sqlite::tables::TaskColumn;
use std::borrow::Cow;

/// The number of the null task, to which the writes from outside belong.
const NULL: i64 = -1;

/// Returns the column of a task of a checkpoint that has prepared `tasks`.
pub(crate) fn task_column(task: &TaskId, tasks: &[TaskRecord]) -> TaskColumn {
    match tasks.iter().position(|prepared| prepared.id == *task) {
        Some(position) => TaskColumn::Number(position as i64),
        None if *task == NULL_TASK => TaskColumn::Number(NULL),
        None => TaskColumn::Id(*task.as_bytes()),
    }
}

/// Returns the task that a column names, if the checkpoint has prepared it.
pub(crate) fn prepared(column: TaskColumn, tasks: &[TaskRecord]) -> Option<&TaskRecord> {
    match column {
        TaskColumn::Number(position) => tasks.get(usize::try_from(position).ok()?),
        TaskColumn::Id(_) => None,
    }
}

/// Returns the id of the task that a column names; `None` of a position that was not prepared, and of the null task by
/// its id.
pub(crate) fn task_id(column: TaskColumn, tasks: &[TaskRecord]) -> Option<TaskId> {
    match column {
        TaskColumn::Number(NULL) => Some(NULL_TASK),
        TaskColumn::Number(_) => prepared(column, tasks).map(|task| task.id),
        TaskColumn::Id(id) => Some(TaskId::from_bytes(id)).filter(|id| *id != NULL_TASK),
    }
}

/// The character of a path that stands for its number.
const PLACEHOLDER: char = '#';
/// The digits of a number in a path.
const DIGITS: usize = 10;
/// The number of a path in its column stands above the number of its name.
const NUMBER_SHIFT: u32 = 24;

/// Splits a path into the text that is stored as a name and the number in it. `None` if it is stored as it is: it is
/// empty, has more than one number, or a character that would stand for one.
pub(crate) fn split_path(path: &str) -> Option<(Cow<'_, str>, i64)> {
    if path.is_empty() || path.contains(PLACEHOLDER) {
        return None;
    }
    let is_other = |c: char| !c.is_ascii_digit();
    let mut numbers = path.split(is_other).filter(|digits| digits.len() == DIGITS);
    match (numbers.next(), numbers.next()) {
        (None, _) => Some((Cow::Borrowed(path), 0)),
        (Some(digits), None) => {
            let at = digits.as_ptr().addr() - path.as_ptr().addr();
            let name = format!("{}{PLACEHOLDER}{}", &path[..at], &path[at + DIGITS..]);
            Some((Cow::Owned(name), digits.parse().ok()?))
        }
        _ => None,
    }
}

/// Returns the path with a number in it.
pub(crate) fn join_path(name: &str, number: i64) -> String {
    name.replace(PLACEHOLDER, &format!("{number:0DIGITS$}"))
}

/// Returns the column of a path with a name and a number; `None` if the number of the name is too great.
pub(crate) fn path_column(name: i64, number: i64) -> Option<i64> {
    (name < 1 << NUMBER_SHIFT).then_some(number << NUMBER_SHIFT | name)
}

/// Returns the name and the number of a path.
pub(crate) fn of_path_column(column: i64) -> (i64, i64) {
    (column & ((1 << NUMBER_SHIFT) - 1), column >> NUMBER_SHIFT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_with_one_number_is_split_and_joined() {
        let calls = ["~c, l, flow, 0000000012, one", "~c, s, node, 9999999999, #"];
        assert_eq!(split_path(calls[0]), Some(("~c, l, flow, #, one".into(), 12)));
        assert_eq!(split_path(calls[1]), None, "the character would stand for a number");
        for path in [calls[0], "~__pregel_pull, node", "9999999999", "a 123456789 b 0000000000", "01234567890 é"] {
            let (name, number) = split_path(path).unwrap();
            assert_eq!(join_path(&name, number), path);
            let column = path_column(7, number).unwrap();
            assert_eq!(of_path_column(column), (7, number));
        }
    }

    #[test]
    fn a_path_that_is_not_split_is_stored_as_it_is() {
        for path in ["", "#", "~c, l, #, 0000000001", "0000000000, 0000000001"] {
            assert_eq!(split_path(path), None, "{path}");
        }
        assert_eq!(path_column(1 << NUMBER_SHIFT, 0), None);
    }

    #[test]
    fn numbers_come_before_ids() {
        let columns = [TaskColumn::Number(-1), TaskColumn::Number(3), TaskColumn::Id([0; 16]), TaskColumn::Id([1; 16])];
        assert!(columns.is_sorted());
        assert_eq!(task_column(&NULL_TASK, &[]), columns[0]);
        let ids = columns.map(|column| task_id(column, &[]));
        assert_eq!(ids, [Some(NULL_TASK), None, None, Some(TaskId::from_bytes([1; 16]))]);
    }
}
