//! The standard blocks, one struct for those with the same fields.
//!
//! *Absent:* their constructors, and the blocks of providers.

use super::fields::object;
use super::{Annotation, Index};
use crate::ToolStatus;
use annals_base::{Map, Value};

object! {
    /// A text (`text`).
    TextBlock {
        /// The text.
        text: String,
        /// The sources of the text.
        annotations: Option<Vec<Annotation>>,
        /// Its place in a stream.
        index: Option<Index>,
    }
}

object! {
    /// The reasoning of the model before its answer (`reasoning`).
    ReasoningBlock {
        /// The thought, if the provider shows it.
        reasoning: Option<String>,
        /// Its place in a stream.
        index: Option<Index>,
    }
}

object! {
    /// A refusal of the model to answer, as the provider reports it (`refusal`).
    RefusalBlock {
        /// The words of the refusal; an empty text if the provider gave none.
        refusal: String,
        /// Its place in a stream.
        index: Option<Index>,
    }
}

object! {
    /// Data of some medium (`image`, `audio`, `video`, `file`): at an address, in the message, or at the provider.
    MediaBlock {
        /// The address of the data.
        url: Option<String>,
        /// The data themselves, as base64.
        base64: Option<String>,
        /// The name under which the provider keeps them.
        file_id: Option<String>,
        /// The MIME type of the data.
        mime_type: Option<String>,
        /// Its place in a stream.
        index: Option<Index>,
    }
}

object! {
    /// A document that is a plain text (`text-plain`).
    PlainTextBlock {
        /// The MIME type: `text/plain`.
        mime_type: Option<String>,
        /// The text itself.
        text: Option<String>,
        /// The address of the text.
        url: Option<String>,
        /// The text as base64.
        base64: Option<String>,
        /// The name under which the provider keeps it.
        file_id: Option<String>,
        /// Its title.
        title: Option<String>,
        /// Context of the text for the model.
        context: Option<String>,
        /// Its place in a stream.
        index: Option<Index>,
    }
}

object! {
    /// A request of the model to call a tool (`tool_call`). Its id is null (in `more`) if the provider gave none.
    ToolCallBlock {
        /// The name of the tool.
        name: String,
        /// The arguments by name.
        args: Map,
        /// Its place in a stream.
        index: Option<Index>,
    }
}

object! {
    /// A chunk of such a request (`tool_call_chunk`).
    ToolCallChunkBlock {
        /// The name of the tool.
        name: Option<String>,
        /// A chunk of the text of the arguments.
        args: Option<String>,
        /// Its place in a stream.
        index: Option<Index>,
    }
}

object! {
    /// A request whose arguments could not be read (`invalid_tool_call`).
    InvalidToolCallBlock {
        /// The name of the tool.
        name: Option<String>,
        /// The arguments as the model wrote them.
        args: Option<String>,
        /// The reason why the arguments could not be read.
        error: Option<String>,
        /// Its place in a stream.
        index: Option<Index>,
    }
}

object! {
    /// A call of a tool that runs at the provider (`server_tool_call`).
    ServerToolCallBlock {
        /// The name of the tool.
        name: String,
        /// The arguments by name, if the provider shows them.
        args: Option<Map>,
        /// Its place in a stream.
        index: Option<Index>,
    }
}

object! {
    /// A chunk of such a call (`server_tool_call_chunk`).
    ServerToolCallChunkBlock {
        /// The name of the tool.
        name: Option<String>,
        /// A chunk of the text of the arguments.
        args: Option<String>,
        /// Its place in a stream.
        index: Option<Index>,
    }
}

object! {
    /// The result of such a call (`server_tool_result`).
    ServerToolResultBlock {
        /// The id of the call.
        tool_call_id: String,
        /// The status, if the provider tells it.
        status: Option<ToolStatus>,
        /// The result.
        output: Option<Value>,
        /// Its place in a stream.
        index: Option<Index>,
    }
}

object! {
    /// A block outside the standard (`non_standard`), as the provider gave it.
    NonStandardBlock {
        /// The block of the provider.
        value: Value,
        /// Its place in a stream.
        index: Option<Index>,
    }
}
