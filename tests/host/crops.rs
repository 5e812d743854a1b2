//! Texts of many parts of images beside those of transformers: three models of each family, 30 parts.

use crate::support::crops::check;
use crate::support::generation::{case, tiled};

#[test]
fn texts_of_crops_are_those_of_transformers() {
    let found = check("generation", |name| case(name).prompt);
    assert_eq!(found, (9, 0));
}

#[test]
fn texts_about_tiles_of_crops_are_those_of_transformers() {
    let prompt = |name: &str| tiled().into_iter().find(|case| case.name == name).unwrap().prompt;
    assert_eq!(check("smolvlm", prompt), (3, 0));
}
