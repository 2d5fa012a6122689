"""The broker among others: follows the metadata, stays registered, notices who is gone, asks the controller."""
