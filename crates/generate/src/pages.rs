//! Allocation of the cache's pages.

/// Tokens of a page.
pub(crate) const PAGE: usize = 16;

/// The pages of the cache.
#[derive(Clone, Debug)]
pub(crate) struct Pages {
    /// Pages that no sequence uses.
    free: Vec<u32>,
    /// Number of sequences that use each page.
    users: Vec<u32>,
}

impl Pages {
    /// Creates `count` unused pages.
    pub(crate) fn new(count: usize) -> Self {
        // A cache has far fewer than 2³¹ pages. The first page is given away first.
        let free = (0..count as u32).rev().collect();
        Self {
            free,
            users: vec![0; count],
        }
    }

    /// Returns the number of all pages.
    pub(crate) fn count(&self) -> usize {
        self.users.len()
    }

    /// Takes pages until `table` has room for `tokens` tokens. Returns false, and takes none, if there are too few.
    pub(crate) fn grow(&mut self, table: &mut Vec<u32>, tokens: usize) -> bool {
        self.grow_beside(0, table, tokens)
    }

    /// Does what [`grow`](Self::grow) does, but leaves `kept` pages unused.
    pub(crate) fn grow_beside(&mut self, kept: usize, table: &mut Vec<u32>, tokens: usize) -> bool {
        let missing = tokens.div_ceil(PAGE).saturating_sub(table.len());
        if missing > 0 && missing + kept > self.free.len() {
            return false;
        }
        let taken = self.free.drain(self.free.len() - missing..).rev();
        for page in taken {
            self.users[page as usize] = 1;
            table.push(page);
        }
        true
    }

    /// Returns the table of another sequence that uses pages. The pages must not be written any more.
    pub(crate) fn share(&mut self, table: &[u32]) -> Vec<u32> {
        table.iter().for_each(|&page| self.users[page as usize] += 1);
        table.to_vec()
    }

    /// Gives back the pages of a sequence.
    pub(crate) fn release(&mut self, table: &mut Vec<u32>) {
        for page in table.drain(..).rev() {
            let users = &mut self.users[page as usize];
            *users -= 1;
            if *users == 0 {
                self.free.push(page);
            }
        }
    }

    /// Returns the number of unused pages.
    pub(crate) fn unused(&self) -> usize {
        self.free.len()
    }
}

/// Returns the place in the cache of token `position` of a sequence. -1, which is not written, if its page is missing.
pub(crate) fn place(table: &[u32], position: usize) -> i32 {
    let page = table.get(position / PAGE);
    let place = |&page: &u32| page as usize * PAGE + position % PAGE;
    page.map(place)
        .and_then(|place| i32::try_from(place).ok())
        .unwrap_or(-1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequences_share_pages_and_return_them() {
        let mut pages = Pages::new(5);
        let (mut a, mut b) = (Vec::new(), Vec::new());
        assert!(pages.grow(&mut a, 1) && pages.grow(&mut b, PAGE + 1));
        assert_eq!((&a[..], &b[..]), (&[0][..], &[1, 2][..]));
        assert_eq!(
            [place(&b, 0), place(&b, PAGE + 3), place(&b, 2 * PAGE)],
            [16, 35, -1]
        );
        // A page has room for more tokens.
        assert!(pages.grow(&mut a, PAGE));
        assert_eq!(a, [0]);
        assert!(!pages.grow(&mut a, 4 * PAGE));
        assert_eq!((a.len(), pages.unused()), (1, 2));
        pages.release(&mut b);
        assert!(b.is_empty() && pages.grow(&mut a, 4 * PAGE));
        assert_eq!(pages.unused(), 1);
        let mut shared = pages.share(&a[..2]);
        pages.release(&mut a);
        assert_eq!((pages.unused(), &shared[..]), (3, &[0, 1][..]));
        assert!(pages.grow(&mut shared, 3 * PAGE) && shared.len() == 3);
        pages.release(&mut shared);
        assert_eq!((pages.unused(), pages.count()), (5, 5));
        let mut all = pages.free.clone();
        all.sort_unstable();
        assert_eq!(all, [0, 1, 2, 3, 4]);
    }
}
