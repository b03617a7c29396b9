"""Word, path or arrays -> Dataset: `load_dataset`, and the sources it knows."""

from confide.data.arrays import arrays as arrays, npz as npz
from confide.data.base import (
    DATASETS as DATASETS,
    RawDataset as RawDataset,
    RawSplit as RawSplit,
    cut as cut,
    data_folder as data_folder,
    load_dataset as load_dataset,
    names as names,
    recognises as recognises,
)
from confide.data.datasets import (
    cifar10 as cifar10,
    cifar100 as cifar100,
    clinc150 as clinc150,
    fashion_sample as fashion_sample,
    mnist as mnist,
    svhn as svhn,
    tiny_imagenet as tiny_imagenet,
)
from confide.data.folder import folder as folder, text_folder as text_folder
from confide.data.images import LazyImages as LazyImages
from confide.data.tables import csv as csv, hf as hf, jsonl as jsonl, parquet as parquet
from confide.data.unlabelled import load_unlabelled as load_unlabelled
from confide.records import Dataset as Dataset, Split as Split
