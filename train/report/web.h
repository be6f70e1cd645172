/* web.h - a page of web/ with its data: one HTML file, nothing to fetch, nothing to install. */
#ifndef TRAIN_REPORT_WEB_H
#define TRAIN_REPORT_WEB_H

#include "muon/muon.h"

#include <jansson.h>

/* Writes `page`, a text with a place for data, to a file that appears when it is complete. data is
 * released; NULL is MUON_E_NOMEM. */
muon_status web_write(const char *path, const unsigned char *page, json_t *data);

/* Text of any origin: each byte that is no UTF-8 becomes U+FFFD. NULL is null. */
json_t *web_text(const char *text);

#endif
