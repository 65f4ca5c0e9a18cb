"""Data: where they come from (sources), who holds what (partitions), and what minibatches go through (transforms)."""

from turnout.data.arrays import from_arrays, from_dataset
from turnout.data.catalogue import SOURCES, describe, inventory, load
from turnout.data.cifar import cifar10
from turnout.data.columns import mixed_columns
from turnout.data.declared import declared
from turnout.data.digits import digits
from turnout.data.directory import data_directory
from turnout.data.emnist import emnist
from turnout.data.federated import FederatedData, Shards
from turnout.data.federations import from_flower, from_pfl
from turnout.data.fetch import fetch
from turnout.data.huggingface import from_huggingface
from turnout.data.idx import fashion_mnist, mnist
from turnout.data.images import ImageFolder
from turnout.data.instructions import from_instructions, instructions
from turnout.data.leaf import femnist, leaf_characters, leaf_images, read_leaf_json
from turnout.data.parquet import ParquetClients
from turnout.data.partition import (
    ById,
    ClassesPerClient,
    Dirichlet,
    HsuDirichlet,
    Iid,
    LabelClusters,
    LabelGroups,
    Partition,
    PowerLaw,
)
from turnout.data.qmnist import mnist_by_writer
from turnout.data.sent140 import leaf_tweets, sent140
from turnout.data.shakespeare import shakespeare
from turnout.data.source import Source
from turnout.data.split import split_source
from turnout.data.standardise import standardised
from turnout.data.store import store, stored
from turnout.data.synthetic import synthetic, synthetic_iid
from turnout.data.table import from_table, table
from turnout.data.tokens import from_tokens
from turnout.data.transforms import (
    AdjustSharpness,
    ColorJitter,
    Equalize,
    Normalise,
    Posterize,
    RandomCrop,
    RandomHorizontalFlip,
    Transform,
    WordVectors,
    cifar100_augmentation,
    cifar_augmentation,
)

__all__ = [
    "SOURCES",
    "AdjustSharpness",
    "ById",
    "ClassesPerClient",
    "ColorJitter",
    "Dirichlet",
    "Equalize",
    "FederatedData",
    "HsuDirichlet",
    "Iid",
    "ImageFolder",
    "LabelClusters",
    "LabelGroups",
    "Normalise",
    "ParquetClients",
    "Partition",
    "Posterize",
    "PowerLaw",
    "RandomCrop",
    "RandomHorizontalFlip",
    "Shards",
    "Source",
    "Transform",
    "WordVectors",
    "cifar10",
    "cifar100_augmentation",
    "cifar_augmentation",
    "data_directory",
    "declared",
    "describe",
    "digits",
    "emnist",
    "fashion_mnist",
    "femnist",
    "fetch",
    "from_arrays",
    "from_dataset",
    "from_flower",
    "from_huggingface",
    "from_instructions",
    "from_pfl",
    "from_table",
    "from_tokens",
    "instructions",
    "inventory",
    "leaf_characters",
    "leaf_images",
    "leaf_tweets",
    "load",
    "mixed_columns",
    "mnist",
    "mnist_by_writer",
    "read_leaf_json",
    "sent140",
    "shakespeare",
    "split_source",
    "standardised",
    "store",
    "stored",
    "synthetic",
    "synthetic_iid",
    "table",
]
