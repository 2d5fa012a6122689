"""The broker among others: follows the cluster's metadata, stays registered, notices who is gone, asks the controller."""
