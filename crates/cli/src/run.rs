//! `hipvit run`.

use std::fs;
use std::io::Write as _;
use std::path::PathBuf;
use std::str::FromStr;

use anyhow::Result;
use hipvit::{RunConfig, TensorArray};

use super::model_args::ModelArgs;
use super::outcome::{Outcome, Usage, refused};
use super::output::{self, Sink};
use super::{escape, npy};

const EXAMPLES: &str = "\
Examples:
  hipvit run model.onnx --input pixel_values=image.npy -o results/
  hipvit run model.onnx --input image.npy --device hip --dtype f16
  hipvit run detector.onnx --input images=photo.npy --input sizes=sizes.npy -o results/";

#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct Args {
    /// ONNX file
    #[arg(value_name = "MODEL", help_heading = "Model")]
    model: PathBuf,
    /// NumPy file with an input; a single input needs no NAME=
    #[arg(
        long,
        short,
        value_name = "NAME=FILE.npy",
        required = true,
        help_heading = "Input"
    )]
    input: Vec<InputFile>,
    /// Directory for the outputs, each in NAME.npy
    #[arg(long, short, value_name = "DIR", help_heading = "Output")]
    output: Option<PathBuf>,
    #[command(flatten)]
    config: RunConfig,
}

/// A file with an input, as `NAME=FILE` or `FILE`.
#[derive(Clone, Debug)]
struct InputFile {
    name: Option<String>,
    file: PathBuf,
}

impl FromStr for InputFile {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(match text.split_once('=') {
            Some((name, file)) => Self {
                name: Some(name.to_owned()),
                file: file.into(),
            },
            None => Self {
                name: None,
                file: text.into(),
            },
        })
    }
}

impl Args {
    pub(crate) fn run(&self) -> Result<Outcome> {
        let arrays = self.input.iter().map(|input| npy::read(&input.file));
        let arrays = arrays.collect::<Result<Vec<TensorArray>>>()?;
        if let Some(directory) = &self.output {
            fs::create_dir_all(directory).map_err(refused(directory))?;
        }
        let declared = hipvit::model::input_names(&self.model)?;
        let names = self.names(&declared)?;
        let shapes = names.iter().copied().zip(arrays.iter().map(TensorArray::shape));
        let model = ModelArgs {
            model: Some(self.model.clone()),
            config: self.config.clone(),
        };
        let session = model.load_by(|builder| builder.load_for(&self.model, shapes))?;
        let views = names.iter().copied().zip(arrays.iter().map(TensorArray::view));
        let outputs = session.run_tensors(views)?;
        let mut out = output::stdout();
        for (name, array) in outputs.iter() {
            if let Some(directory) = &self.output {
                let path = directory.join(file_name(name));
                Sink::file(&path)?.write_whole(&npy::bytes(array))?;
            }
            let line = format!("{name}: {} {:?}", array.element(), array.shape());
            writeln!(out, "{}", escape::one_line(&line))?;
        }
        Ok(Outcome::Complete)
    }

    /// Returns the name of each input. `declared` are the names of the model.
    fn names<'a>(&'a self, declared: &'a [String]) -> Result<Vec<&'a str>> {
        let name = |input: &'a InputFile| match (&input.name, declared) {
            (Some(name), _) => Ok(name.as_str()),
            (None, [only]) => Ok(only.as_str()),
            (None, _) => {
                let names = declared.join("`, `");
                let file = input.file.display();
                Err(Usage(format!(
                    "--input {file} needs the name of an input, as NAME={file}. The inputs are `{names}`"
                ))
                .into())
            }
        };
        self.input.iter().map(name).collect()
    }
}

/// Returns the name of an output's file. Characters that directories cannot have in a name become `_`.
fn file_name(output: &str) -> String {
    let safe = |c: char| {
        if c.is_alphanumeric() || "-_.".contains(c) {
            c
        } else {
            '_'
        }
    };
    let name: String = output.chars().map(safe).collect();
    format!("{}.npy", name.trim_start_matches('.'))
}
