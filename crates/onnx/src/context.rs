//! What a converter of an operator has: the node with its attributes, its operands, and the graph.

use std::cell::RefCell;
use std::collections::HashSet;

use crate::builder::Builder;
use crate::error::{Refusal, refuse};
use crate::program::Node;
use crate::proto::{AttributeProto, TensorProto};
use crate::source::Source;
use crate::value::Value;

/// A node that is converted.
pub(crate) struct Context<'a> {
    pub(crate) node: &'a Node,
    pub(crate) source: &'a Source,
    pub(crate) builder: &'a mut Builder,
    /// Operands. `None` for those that are left out.
    pub(crate) inputs: Vec<Option<Value>>,
    /// Names of the attributes that the converter has read.
    read: RefCell<HashSet<String>>,
}

impl<'a> Context<'a> {
    pub(crate) fn new(
        node: &'a Node,
        source: &'a Source,
        builder: &'a mut Builder,
        inputs: Vec<Option<Value>>,
    ) -> Self {
        Self {
            node,
            source,
            builder,
            inputs,
            read: RefCell::default(),
        }
    }

    /// Refuses attributes that the converter has not read.
    pub(crate) fn check_attributes(&self) -> Result<(), Refusal> {
        let read = self.read.borrow();
        let mut attributes = self.node.attributes.iter();
        match attributes.find(|attribute| !read.contains(&attribute.name)) {
            Some(attribute) => refuse!("has the attribute `{}`, which is not supported", attribute.name),
            None => Ok(()),
        }
    }

    /// Marks attributes as read that do not matter.
    pub(crate) fn ignore(&self, names: &[&str]) {
        self.read
            .borrow_mut()
            .extend(names.iter().map(|&name| name.to_owned()));
    }

    /// Returns an operand.
    pub(crate) fn input(&self, index: usize) -> Result<Value, Refusal> {
        match self.optional(index) {
            Some(value) => Ok(value),
            None => refuse!("lacks its operand {index}"),
        }
    }

    /// Returns an operand that may be left out.
    pub(crate) fn optional(&self, index: usize) -> Option<Value> {
        self.inputs.get(index).cloned().flatten()
    }

    /// Returns true if the node names its result `index`.
    pub(crate) fn wants(&self, index: usize) -> bool {
        self.node.outputs.get(index).is_some_and(|name| !name.is_empty())
    }

    pub(crate) fn opset(&self) -> i64 {
        self.node.opset()
    }

    fn attribute(&self, name: &str) -> Option<&'a AttributeProto> {
        self.read.borrow_mut().insert(name.to_owned());
        self.node
            .attributes
            .iter()
            .find(|attribute| attribute.name == name)
    }

    pub(crate) fn int(&self, name: &str) -> Option<i64> {
        self.attribute(name).map(|attribute| attribute.i)
    }

    pub(crate) fn int_or(&self, name: &str, default: i64) -> i64 {
        self.int(name).unwrap_or(default)
    }

    /// Returns an attribute that is 0 or 1.
    pub(crate) fn flag(&self, name: &str, default: bool) -> bool {
        self.int_or(name, default.into()) != 0
    }

    pub(crate) fn float(&self, name: &str) -> Option<f32> {
        self.attribute(name).map(|attribute| attribute.f)
    }

    pub(crate) fn float_or(&self, name: &str, default: f32) -> f32 {
        self.float(name).unwrap_or(default)
    }

    pub(crate) fn ints(&self, name: &str) -> Option<&'a [i64]> {
        self.attribute(name).map(|attribute| attribute.ints.as_slice())
    }

    pub(crate) fn floats(&self, name: &str) -> Option<&'a [f32]> {
        self.attribute(name).map(|attribute| attribute.floats.as_slice())
    }

    pub(crate) fn string_or(&self, name: &str, default: &str) -> String {
        let given = self
            .attribute(name)
            .map(|attribute| String::from_utf8_lossy(&attribute.s));
        given.map_or_else(|| default.to_owned(), Into::into)
    }

    pub(crate) fn strings(&self, name: &str) -> Vec<String> {
        let given = self.attribute(name).into_iter();
        given
            .flat_map(|attribute| &attribute.strings)
            .map(|text| String::from_utf8_lossy(text).into_owned())
            .collect()
    }

    pub(crate) fn tensor(&self, name: &str) -> Option<&'a TensorProto> {
        self.attribute(name).and_then(|attribute| attribute.t.as_ref())
    }
}
