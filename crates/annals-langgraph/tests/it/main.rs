//! The saver on real databases of LangGraph, and what its turns cost.

mod conflicts;
mod databases;
mod messages;
mod size;
