//! `hipvit preprocess`: the pixel values of one image, to compare them with the library's.

use std::path::PathBuf;

use anyhow::Result;
use hipvit::pipeline::Source;
use safetensors::tensor::{Dtype, TensorView};

use super::inputs::LimitArgs;
use super::{ModelArgs, Outcome, output};

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Image file, or - for standard input
    image: PathBuf,
    #[command(flatten)]
    model: ModelArgs,
    /// Safetensors file to write, with `pixel_values`, f32 [1, 3, H, W]
    #[arg(long, short, value_name = "FILE.safetensors")]
    output: PathBuf,
    #[command(flatten)]
    limits: LimitArgs,
}

impl Args {
    pub fn run(&self) -> Result<Outcome> {
        let session = self.model.load()?;
        let rule = session.preprocess();
        let source = match self.image.as_os_str() == "-" {
            true => Source::Stdin,
            false => Source::File(self.image.clone()),
        };
        let image = source.resize(&source.decode(&self.limits.limits())?, rule)?;
        let mut values = vec![0.0; image.data.len()];
        rule.normalize(&image.data, &mut values)?;
        let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        let view = TensorView::new(Dtype::F32, vec![1, 3, image.height, image.width], &bytes)?;
        let file = safetensors::serialize([("pixel_values", view)], None)?;
        output::write(&self.output, &file)?;
        Ok(Outcome::Complete)
    }
}
