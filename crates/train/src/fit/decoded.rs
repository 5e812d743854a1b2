//! The validation images of an evaluation that prepares them itself.

use hipvit::image::RgbImage;
use hipvit_data::{Broken, Dataset, LoaderOptions};
use rayon::prelude::*;

use super::from_recipe::images_per_run;
use super::{Callbacks, Fit, FitError, broken_elsewhere, broken_texts};

impl Fit {
    /// Calls `each` with the indices of some images and the images, until all of the dataset are decoded. Counts and reports broken images if
    /// there are `callbacks`.
    pub(super) fn decode_all(
        &mut self,
        dataset: &dyn Dataset,
        callbacks: Option<&mut dyn Callbacks>,
        mut each: impl FnMut(&[usize], &[RgbImage]) -> Result<(), FitError>,
    ) -> Result<(), FitError> {
        // Few enough for the host's memory, and enough to keep a GPU busy.
        let chunk = 16 * images_per_run(&self.recipe, self.ranks.as_ref())?;
        let indices: Vec<usize> = (0..dataset.len()).collect();
        let mut broken = Vec::new();
        for indices in indices.chunks(chunk.max(1)) {
            let decode = LoaderOptions::default().decode;
            let decoded = indices
                .par_iter()
                .map(|&index| (index, dataset.decode(index, decode)));
            let decoded: Vec<(usize, hipvit_data::Result<RgbImage>)> = decoded.collect();
            let (mut images, mut known) = (Vec::new(), Vec::new());
            for (index, image) in decoded {
                match image {
                    Ok(image) => {
                        images.push(image);
                        known.push(index);
                    }
                    Err(error) if self.options.skip_broken => broken.push(Broken { index, error }),
                    Err(error) => return Err(error.into()),
                }
            }
            each(&known, &images)?;
        }
        if let Some(callbacks) = callbacks {
            let broken: Vec<_> = broken_texts(&broken).into_iter().map(broken_elsewhere).collect();
            self.report_broken(&broken, callbacks);
        }
        Ok(())
    }
}
