// Before anything is drawn: the theme that was chosen on this device.
const theme = localStorage.getItem("kingdom.theme");
if (theme) document.documentElement.dataset.theme = theme;
