//! Values that take precedence over the keys of a recipe.

use std::path::Path;

use serde::Serialize;
use toml::{Table, Value};

use super::{Recipe, RecipeError};

/// Values of recipe keys that take precedence over the recipe's values.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Overrides(Table);

impl Overrides {
    /// Sets a key, such as `epochs` or `optimizer.lr`. A value that is a table sets keys of a section. `None` sets nothing.
    ///
    /// # Errors
    ///
    /// Returns [`RecipeError::Override`] for a value that TOML cannot represent.
    pub fn set(&mut self, key: &str, value: Option<impl Serialize>) -> Result<(), RecipeError> {
        let Some(value) = value else {
            return Ok(());
        };
        let failed = |error: toml::ser::Error| RecipeError::Override {
            reason: format!("`{key}`: {error}"),
        };
        let mut value = Value::try_from(value).map_err(failed)?;
        let mut names = key.split('.').rev().peekable();
        while let Some(name) = names.next() {
            let table = Table::from_iter([(name.to_owned(), value)]);
            if names.peek().is_none() {
                merge(&mut self.0, table);
                return Ok(());
            }
            value = Value::Table(table);
        }
        Ok(())
    }

    /// Returns true if no key is set.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Recipe {
    /// Returns the recipe with some keys overridden.
    ///
    /// # Errors
    ///
    /// Returns [`RecipeError::Override`] for an unknown key or a value of another type, and [`RecipeError::Value`] for a value out of range.
    pub fn with(&self, overrides: &Overrides) -> Result<Self, RecipeError> {
        let failed = |reason: String| {
            let reason = reason.trim_end().replace("unknown field", "unknown key");
            RecipeError::Override {
                reason: reason.replace('\n', ", "),
            }
        };
        let mut table = Table::try_from(self).map_err(|error| failed(error.to_string()))?;
        merge(&mut table, overrides.0.clone());
        let recipe: Self = table
            .try_into()
            .map_err(|error: toml::de::Error| failed(error.to_string()))?;
        recipe.check(Path::new("options"))?;
        Ok(recipe)
    }
}

/// Replaces the values of a table. Tables within it are merged too.
fn merge(target: &mut Table, source: Table) {
    for (key, value) in source {
        match (target.get_mut(&key), value) {
            (Some(Value::Table(target)), Value::Table(source)) => merge(target, source),
            (_, value) => {
                target.insert(key, value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recipe::Freeze;

    fn with(key: &str, value: impl Serialize) -> Result<Recipe, String> {
        let mut overrides = Overrides::default();
        let set = overrides.set(key, Some(value));
        let recipe = set.and_then(|()| Recipe::default().with(&overrides));
        recipe.map_err(|error| error.to_string())
    }

    #[test]
    fn keys_and_sections_are_overridden() {
        let mut overrides = Overrides::default();
        overrides.set("epochs", Some(7)).unwrap();
        overrides
            .set(
                "optimizer",
                Some(Table::from_iter([("eps".to_owned(), 1.into())])),
            )
            .unwrap();
        overrides.set("optimizer.lr", Some(0.25)).unwrap();
        overrides.set("freeze", Some(Freeze::Backbone)).unwrap();
        overrides.set("batch", None::<usize>).unwrap();
        let mut expected = Recipe {
            epochs: 7,
            freeze: Freeze::Backbone,
            ..Recipe::default()
        };
        (expected.optimizer.lr, expected.optimizer.eps) = (0.25, 1.0);
        assert_eq!(Recipe::default().with(&overrides).unwrap(), expected);
        assert!(Overrides::default().is_empty() && !overrides.is_empty());
    }

    #[test]
    fn unknown_keys_wrong_types_and_ranges_are_refused_by_name() {
        for (error, name) in [
            (with("momentum", 0.9), "momentum"),
            (with("optimizer.dampening", 0.9), "dampening"),
            (with("epochs", "many"), "epochs"),
            (with("epochs", 0), "epochs"),
            (with("seed", u64::MAX), "seed"),
        ] {
            let error = error.unwrap_err();
            assert!(error.contains(name), "{name}: {error}");
            assert!(!error.contains('\n'), "{error}");
        }
    }
}
